package cpu

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/ir"
)

func topKKernel(r *run, l *ir.Launch) func() error {
	k := l.Attr.(ir.TopKAttr).K
	var x, values []float32
	var indices []int32
	var n int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			largest(values[i*k:i*k+k], indices[i*k:i*k+k], x[i*n:i*n+n])
		}
	}
	return func() error {
		x, values, indices = r.f32(l.In[0]), r.f32(l.Out[0]), r.i32(l.Out[1])
		var rows int
		rows, n = r.matrix(l.In[0])
		r.rows(rows, n, part)
		return nil
	}
}

// largest returns the largest elements of x in descending order, with their indices. Equal elements keep their order.
func largest(values []float32, indices []int32, x []float32) {
	have := 0
	for i, v := range x {
		if have == len(values) && rank(v) <= rank(values[have-1]) {
			continue
		}
		if have < len(values) {
			have++
		}
		at := have - 1
		for ; at > 0 && rank(values[at-1]) < rank(v); at-- {
			values[at], indices[at] = values[at-1], indices[at-1]
		}
		values[at], indices[at] = v, int32(i)
	}
}

// rank returns the sort key of an element.
func rank(v float32) float32 {
	if v != v {
		return float32(math.Inf(1))
	}
	return v
}
