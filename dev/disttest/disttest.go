// Package disttest tests implementations of dist.World: those that connect goroutines, with
// all ranks in one process, and those that connect processes, with one rank in each.
package disttest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/lorafuse/lorafuse/dist"
)

// Each runs f on every rank of this process and returns their errors.
func Each(worlds []dist.World, f func(w dist.World) error) []error {
	errs := make([]error, len(worlds))
	var wg sync.WaitGroup
	for i, w := range worlds {
		wg.Go(func() { errs[i] = f(w) })
	}
	wg.Wait()
	return errs
}

// Check calls every method of a World except Abort and Close, and returns the first wrong
// result. All ranks must call it.
func Check(ctx context.Context, w dist.World) error {
	if w.Rank() < 0 || w.Rank() >= w.Size() || w.LocalRank() < 0 || w.LocalRank() >= w.LocalSize() {
		return fmt.Errorf("rank %d of %d, local rank %d of %d", w.Rank(), w.Size(), w.LocalRank(), w.LocalSize())
	}
	for _, c := range []struct {
		name  string
		check func(context.Context, dist.World) error
	}{
		{"all-to-all", checkAllToAll}, {"all-gather", checkAllGather}, {"gather", checkGather},
		{"broadcast", checkBroadcast}, {"split", checkSplit}, {"fold", checkFold},
	} {
		if err := c.check(ctx, w); err != nil {
			return fmt.Errorf("rank %d of %d: %s: %w", w.Rank(), w.Size(), c.name, err)
		}
	}
	return nil
}

// lengths of messages: none, short ones, and some that MPI libraries send in several ways.
var lengths = []int{0, 1, 3, 1000, 5000, 70_000, 300_001}

// message returns n bytes that only from sends to to.
func message(from, to, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(31*from + 7*to + i + i>>8)
	}
	return b
}

func checkAllToAll(ctx context.Context, w dist.World) error {
	for call := range lengths {
		length := func(from, to int) int { return lengths[(call+from+2*to)%len(lengths)] }
		send, recv := make([][]byte, w.Size()), make([][]byte, w.Size())
		for i := range send {
			send[i], recv[i] = message(w.Rank(), i, length(w.Rank(), i)), make([]byte, length(i, w.Rank()))
		}
		if err := w.AllToAll(ctx, recv, send); err != nil {
			return err
		}
		for i := range recv {
			if !bytes.Equal(recv[i], message(i, w.Rank(), length(i, w.Rank()))) {
				return fmt.Errorf("wrong bytes of rank %d", i)
			}
		}
	}
	return nil
}

func checkAllGather(ctx context.Context, w dist.World) error {
	for call := range lengths {
		length := func(from int) int { return lengths[(call+from)%len(lengths)] }
		parts := make([][]byte, w.Size())
		for i := range parts {
			parts[i] = make([]byte, length(i))
		}
		copy(parts[w.Rank()], message(w.Rank(), 0, length(w.Rank())))
		if err := w.AllGather(ctx, parts); err != nil {
			return err
		}
		for i := range parts {
			if !bytes.Equal(parts[i], message(i, 0, length(i))) {
				return fmt.Errorf("wrong bytes of rank %d", i)
			}
		}
	}
	return nil
}

func checkGather(ctx context.Context, w dist.World) error {
	all, err := dist.Gather(ctx, w, message(w.Rank(), 1, 3*w.Rank()))
	if err != nil {
		return err
	}
	for i, m := range all {
		if !bytes.Equal(m, message(i, 1, 3*i)) {
			return fmt.Errorf("found %v of rank %d", m, i)
		}
	}
	return nil
}

func checkBroadcast(ctx context.Context, w dist.World) error {
	for root := range w.Size() {
		got, err := dist.Broadcast(ctx, w, root, fmt.Appendf(nil, "from %d", w.Rank()))
		if err != nil {
			return err
		}
		if want := fmt.Sprint("from ", root); string(got) != want {
			return fmt.Errorf("found %q, expected %q", got, want)
		}
	}
	return nil
}

// checkSplit splits the World by parity, then its parts, and uses all of them in turns.
func checkSplit(ctx context.Context, w dist.World) error {
	part, err := w.Split(ctx, -w.Rank()%2)
	if err != nil {
		return err
	}
	if size := (w.Size() + 1 - w.Rank()%2) / 2; part.Rank() != w.Rank()/2 || part.Size() != size {
		return fmt.Errorf("found rank %d of %d, expected %d of %d", part.Rank(), part.Size(), w.Rank()/2, size)
	}
	if part.LocalRank() != w.LocalRank() || part.LocalSize() != w.LocalSize() {
		return fmt.Errorf("local rank %d of %d became %d of %d", w.LocalRank(), w.LocalSize(), part.LocalRank(), part.LocalSize())
	}
	alone, err := part.Split(ctx, part.Rank())
	if err != nil {
		return err
	}
	if alone.Rank() != 0 || alone.Size() != 1 {
		return fmt.Errorf("found rank %d of %d, expected 0 of 1", alone.Rank(), alone.Size())
	}
	for range 3 {
		for _, x := range []dist.World{part, w, alone} {
			if err := checkGather(ctx, x); err != nil {
				return err
			}
		}
	}
	return part.Close()
}

// checkFold sums terms of every number and many lengths.
func checkFold(ctx context.Context, w dist.World) error {
	r := rand.New(rand.NewPCG(1, 2)) // the same on all ranks
	for m := range 18 {
		n, seed := r.IntN(3000), r.Uint64()
		if err := Fold(ctx, w, dist.NewSum(w, n), Terms(m, n, seed), n); err != nil {
			return fmt.Errorf("%d terms of %d elements: %w", m, n, err)
		}
	}
	return nil
}

// Terms returns m vectors of n elements with all kinds of float32.
func Terms(m, n int, seed uint64) [][]float32 {
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

// Fold adds terms of n elements on the ranks of a World and compares the sum with the left
// fold ((0 + t0) + t1) + …, bit for bit. Rank r adds the terms r, r+W, ….
func Fold(ctx context.Context, w dist.World, s *dist.Sum, terms [][]float32, n int) error {
	for first := 0; first < len(terms); first += w.Size() {
		var own []float32
		if i := first + w.Rank(); i < len(terms) {
			own = terms[i]
		}
		if err := s.Add(ctx, own, min(w.Size(), len(terms)-first)); err != nil {
			return err
		}
	}
	sum, want := make([]float32, n), make([]float32, n)
	if err := s.Gather(ctx, sum); err != nil {
		return err
	}
	for _, t := range terms {
		for j, x := range t {
			want[j] += x
		}
	}
	for j := range want {
		if bits(sum[j]) != bits(want[j]) {
			return fmt.Errorf("element %d: found %x, expected %x", j, bits(sum[j]), bits(want[j]))
		}
	}
	return nil
}

// bits returns the bits of x; all NaN are one.
func bits(x float32) uint32 {
	if x != x {
		x = float32(math.NaN())
	}
	return math.Float32bits(x)
}
