package dist_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/dev/disttest"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// TestFold: every number of ranks computes the left fold of the terms, bit for bit. A part
// longer than chunk arrives in several exchanges.
func TestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size, m := rapid.IntRange(1, 8).Draw(t, "ranks"), rapid.IntRange(1, 17).Draw(t, "terms")
		n, chunk := rapid.IntRange(0, 300).Draw(t, "elements"), rapid.IntRange(1, 300).Draw(t, "chunk")
		terms := disttest.Terms(m, n, rapid.Uint64().Draw(t, "seed"))
		for _, err := range disttest.Each(local.New(size), func(w dist.World) error {
			sum := dist.NewSum(w, n)
			sum.SetChunk(chunk)
			return disttest.Fold(context.Background(), w, sum, terms, n)
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
	terms := disttest.Terms(7, 50, 3)
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
				for rank, err := range disttest.Each(worlds, func(w dist.World) error {
					err := disttest.Fold(ctx, w, dist.NewSum(w, 50), terms, 50)
					if err == nil && mode == "drop" {
						// What it left out last is found by its next call.
						err = w.AllGather(ctx, make([][]byte, size))
					}
					return err
				}) {
					name := fmt.Sprintf("%s at call %d of %d ranks, rank %d", mode, call, size, rank)
					if mode == "delay" {
						require.NoError(t, err, name)
						continue
					}
					require.Error(t, err, name)
					if rank != call%size {
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
