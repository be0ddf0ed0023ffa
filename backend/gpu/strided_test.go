package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/ir"
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
		r := &Run{}
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
