package dist_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// each runs f on every rank and returns their errors.
func each(worlds []dist.World, f func(w dist.World) error) []error {
	errs := make([]error, len(worlds))
	var wg sync.WaitGroup
	for i, w := range worlds {
		wg.Go(func() { errs[i] = f(w) })
	}
	wg.Wait()
	return errs
}

// vectors returns the terms of a sum with all kinds of float32.
func vectors(m, n int, seed uint64) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.SmallestNonzeroFloat32, -3e-39, math.MaxFloat32}
	terms := make([][]float32, m)
	for i := range terms {
		terms[i] = make([]float32, n)
		for j := range terms[i] {
			terms[i][j] = float32(r.NormFloat64() * math.Exp(20*r.NormFloat64()))
			if r.IntN(8) == 0 {
				terms[i][j] = special[r.IntN(len(special))]
			}
		}
	}
	return terms
}

// fold is the reference: ((0 + t0) + t1) + ….
func fold(terms [][]float32, n int) []uint32 {
	sum := make([]float32, n)
	for _, t := range terms {
		for j, x := range t {
			sum[j] += x
		}
	}
	return bits(sum)
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		if b[i] = math.Float32bits(v); v != v {
			b[i] = math.Float32bits(float32(math.NaN()))
		}
	}
	return b
}

// share sums the terms on the ranks: rank r has the terms r, r+W, …. A part longer than
// stretch arrives in several.
func share(ctx context.Context, w dist.World, terms [][]float32, n, stretch int) ([]float32, error) {
	s := dist.NewSum(w, n)
	s.SetStretch(stretch)
	for first := 0; first < len(terms); first += w.Size() {
		var own []float32
		if i := first + w.Rank(); i < len(terms) {
			own = terms[i]
		}
		if err := s.Add(ctx, own, min(w.Size(), len(terms)-first)); err != nil {
			return nil, err
		}
	}
	sum := make([]float32, n)
	return sum, s.Gather(ctx, sum)
}

// TestFold: every number of ranks computes the left fold of the terms, bit for bit.
func TestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, m := rapid.IntRange(1, 8).Draw(t, "ranks"), rapid.IntRange(1, 17).Draw(t, "terms")
		n, stretch := rapid.IntRange(0, 300).Draw(t, "elements"), rapid.IntRange(1, 300).Draw(t, "stretch")
		terms := vectors(m, n, rapid.Uint64().Draw(t, "seed"))
		want := fold(terms, n)
		for _, err := range each(local.New(size), func(w dist.World) error {
			sum, err := share(context.Background(), w, terms, n, stretch)
			if err != nil {
				return err
			}
			for i, b := range bits(sum) {
				if b != want[i] {
					return fmt.Errorf("rank %d, element %d: %x, not %x", w.Rank(), i, b, want[i])
				}
			}
			return nil
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// faulty fails at a call: "delay" sleeps before it, "drop" leaves it out as if its messages
// were lost, "die" aborts.
type faulty struct {
	dist.World
	mode  string
	calls int
}

var errDied = errors.New("died")

func (f *faulty) fault() (bool, error) {
	if f.calls--; f.calls != 0 {
		return false, nil
	}
	switch f.mode {
	case "delay":
		time.Sleep(20 * time.Millisecond)
	case "drop":
		return true, nil
	case "die":
		f.Abort(75)
		return true, errDied
	}
	return false, nil
}

func (f *faulty) AllToAll(ctx context.Context, recv, send [][]byte) error {
	if out, err := f.fault(); out {
		return err
	}
	return f.World.AllToAll(ctx, recv, send)
}

func (f *faulty) AllGather(ctx context.Context, parts [][]byte) error {
	if out, err := f.fault(); out {
		return err
	}
	return f.World.AllGather(ctx, parts)
}

// TestFoldFailures: a rank that drops a call or dies gives an error on every rank by the
// end of their contexts, a late one gives none, and no goroutine stays behind.
func TestFoldFailures(t *testing.T) {
	before := runtime.NumGoroutine()
	terms := vectors(7, 50, 3)
	want := fold(terms, 50)
	for _, mode := range []string{"delay", "drop", "die"} {
		for call := 1; call <= 4; call++ {
			for size := 2; size <= 4; size++ {
				ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
				if mode != "drop" {
					ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
				}
				if size > 2 && call > 3 {
					cancel()
					continue // has fewer rounds
				}
				worlds := local.New(size)
				worlds[call%size] = &faulty{World: worlds[call%size], mode: mode, calls: call}
				sums := make([][]float32, size)
				for rank, err := range each(worlds, func(w dist.World) (err error) {
					sums[w.Rank()], err = share(ctx, w, terms, 50, 50)
					if err == nil && mode == "drop" {
						// What it left out last is found by its next call.
						err = w.AllGather(ctx, make([][]byte, size))
					}
					return err
				}) {
					name := fmt.Sprintf("%s at call %d of %d ranks, rank %d", mode, call, size, rank)
					if mode == "delay" {
						require.NoError(t, err, name)
						require.Equal(t, want, bits(sums[rank]), name)
						continue
					}
					require.Error(t, err, name)
					if !errors.Is(err, errDied) {
						require.ErrorIs(t, err, dist.ErrLost, name)
					}
				}
				cancel()
			}
		}
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}
