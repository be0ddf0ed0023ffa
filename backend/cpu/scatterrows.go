package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/ir"
)

func scatterRowsKernel(r *run, l *ir.Launch) func() error {
	// Each task writes all rows, in their order, to some of the columns.
	const stretch = 1 << 10 // bytes
	var table, rows, dst []byte
	var index []int32
	var width int
	whole := func(lo, hi int) { copy(dst[lo:hi], table[lo:hi]) }
	part := func(t int) {
		lo, hi := t*stretch, min(width, t*stretch+stretch)
		for i, at := range index {
			if at >= 0 {
				copy(dst[int(at)*width+lo:int(at)*width+hi], rows[i*width+lo:])
			}
		}
	}
	return func() error {
		table, rows, index, dst = r.bytes(l.In[0]), r.bytes(l.In[1]), r.i32(l.In[2]), r.bytes(l.Out[0])
		have := r.axis(l.Out[0], 0)
		for i, at := range index {
			if int(at) >= have {
				return fmt.Errorf("index %d at %d, the table has %d rows", at, i, have)
			}
		}
		if len(dst) == 0 {
			return nil
		}
		if &table[0] != &dst[0] {
			r.elements(len(dst), whole)
		}
		width = len(dst) / have
		r.dev.pool.Run((width+stretch-1)/stretch, part)
		return nil
	}
}
