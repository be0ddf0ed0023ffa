//go:build cuda && linux

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// places lists where operand o of a walk reads, as the kernels compute it.
func places(s *strided, o int) []int {
	place, d1, d2, d3 := s.axes()
	var t [ir.MaxRank]int
	for i := range s.rank {
		t[place[i]] = s.strides[o][i]
	}
	at := make([]int, s.count())
	for i := range at {
		c := [ir.MaxRank]int{i / d3 / d2 / d1, i / d3 / d2 % d1, i / d3 % d2, i % d3}
		for a := range c {
			at[i] += c[a] * t[a]
		}
	}
	return at
}

// Joining axes changes no place, and wider words are the same neighbours.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 4), 0, ir.MaxRank).Draw(t, "shape")
		r := &run{}
		s := r.over(ir.Ref{Type: ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(shape...)}})
		s.contiguous()
		for range 2 {
			in := append([]int{}, shape[rapid.IntRange(0, len(shape)).Draw(t, "missing"):]...)
			for i := range in {
				if rapid.Bool().Draw(t, "repeated") {
					in[i] = 1
				}
			}
			s.repeated(r, ir.Ref{Type: ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(in...)}})
		}
		joined := s
		joined.join()
		require.Equal(t, s.count(), joined.count())
		for o := range s.operands {
			require.Equal(t, places(&s, o), places(&joined, o), "operand %d of %v", o, shape)
		}
		m := mover{size: 4}
		if m.fits(8, 0, 0, &joined) {
			wide := joined
			wide.widen(2)
			for o := range s.operands {
				for i, at := range places(&wide, o) {
					require.Equal(t, places(&joined, o)[2*i], 2*at)
					require.Equal(t, places(&joined, o)[2*i+1], 2*at+1)
				}
			}
		}
	})
}

// Launches of one program share their memory in passing, and may ask for more
// shared memory than kernels have without asking.
func TestReserved(t *testing.T) {
	simtest.Need(t)
	dev, err := Open(backend.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	require.NoError(t, dev.queue.do(func() error {
		c := &compiler{dev: dev}
		c.reserve(100)
		c.reserve(40)
		require.Equal(t, 100, c.scratch)
		k, err := c.kernel("philox", "philox_u32", 256)
		require.NoError(t, err)
		require.NoError(t, k.share(1<<10))
		require.NoError(t, k.share(96<<10))
		require.Error(t, k.share(1<<30))
		_, err = c.kernel("philox", "nothing", 256)
		require.ErrorIs(t, err, backend.ErrUnsupported)
		require.ErrorContains(t, err, "kernels/cuda/philox.cu has no kernel nothing")
		_, err = c.kernel("nowhere", "nothing", 256)
		require.ErrorIs(t, err, backend.ErrUnsupported)
		return nil
	}))
	n, err := dev.Scratch(&ir.Program{Bounds: make([]ir.Bound, 1)})
	require.NoError(t, err)
	require.Zero(t, n)
}
