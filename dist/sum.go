package dist

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/lorafuse/lorafuse/internal/vec"
)

// exchanged is the most elements that a rank receives in one all-to-all of a Sum.
const exchanged = 1 << 22

// Sum computes the left fold ((0 + v0) + v1) + … of float32 vectors that the ranks of a
// World hold. The order is that of the vectors' numbers, whatever the number of ranks.
// Rank r adds the elements of part r of the vector, which it receives from all ranks, and
// at the end every rank receives all parts. All ranks call its methods in the same order.
//
// A rank receives k·n·(W−1)/W elements for k calls of Add, and n·(W−1)/W for Gather. It
// holds n/W elements of the sum, and at most n or 4 Mi elements on their way.
type Sum struct {
	world World
	n     int
	own   []float32 // the sum of part Rank()
	run   []float32 // the chunks of the part that arrive, one from each rank
	step  int       // length of a chunk
}

// NewSum returns a sum of vectors of n elements, which starts at 0.
func NewSum(w World, n int) *Sum {
	size := w.Size()
	own := Bounds(n, w.Rank()+1, size) - Bounds(n, w.Rank(), size)
	step := min(max(exchanged/size, 1), (n+size-1)/size)
	return &Sum{world: w, n: n, own: make([]float32, own), run: make([]float32, step*size), step: step}
}

// Add adds one vector of each of the first count ranks, in the order of the ranks. The
// others pass nil. The vector may be changed when Add has returned.
func (s *Sum) Add(ctx context.Context, v []float32, count int) error {
	w, size := s.world, s.world.Size()
	sends := w.Rank() < count
	if sends && len(v) != s.n {
		return fmt.Errorf("vector of %d elements, sum of %d", len(v), s.n)
	}
	if size == 1 {
		vec.Add(s.own, s.own, v)
		return nil
	}
	longest := (s.n + size - 1) / size
	send, recv := make([][]byte, size), make([][]byte, size)
	for at := 0; at < longest; at += s.step {
		own := s.own[min(at, len(s.own)):min(at+s.step, len(s.own))]
		for i := range size {
			send[i], recv[i] = nil, nil
			if sends {
				part := v[Bounds(s.n, i, size):Bounds(s.n, i+1, size)]
				send[i] = bytesOf(part[min(at, len(part)):min(at+s.step, len(part))])
			}
			if i < count {
				recv[i] = bytesOf(s.run[i*s.step:][:len(own)])
			}
		}
		if err := w.AllToAll(ctx, recv, send); err != nil {
			return err
		}
		for i := range count {
			vec.Add(own, own, s.run[i*s.step:][:len(own)])
		}
	}
	return nil
}

// Gather writes the sum into dst, of n elements, on every rank, and starts at 0 again.
func (s *Sum) Gather(ctx context.Context, dst []float32) error {
	if len(dst) != s.n {
		return fmt.Errorf("destination of %d elements, sum of %d", len(dst), s.n)
	}
	parts := make([][]byte, s.world.Size())
	for i := range parts {
		parts[i] = bytesOf(dst[Bounds(s.n, i, len(parts)):Bounds(s.n, i+1, len(parts))])
	}
	copy(parts[s.world.Rank()], bytesOf(s.own))
	if err := s.world.AllGather(ctx, parts); err != nil {
		return err
	}
	clear(s.own)
	return nil
}

// bytesOf returns the memory of x. Ranks of one World have the same byte order.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
