package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// scatterRowsKernel writes rows over a table; the table is copied unless the result is in place. Each task writes all
// rows, in order, for a range of columns.
func scatterRowsKernel(r *run, l *ir.Launch) func() error {
	if l.In[0].Stored() != l.Out[0].Stored() || l.In[1].Stored() != l.Out[0].Stored() {
		return storedScatterRows(r, l)
	}
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
	return func() (err error) {
		table, rows, dst = r.bytes(l.In[0]), r.bytes(l.In[1]), r.bytes(l.Out[0])
		if index, err = r.scatterIndex(l); err != nil || len(dst) == 0 {
			return err
		}
		if &table[0] != &dst[0] {
			r.elements(len(dst), whole)
		}
		width = len(dst) / r.axis(l.Out[0], 0)
		r.dev.pool.Run((width+stretch-1)/stretch, part)
		return nil
	}
}

// storedScatterRows returns a scatterRowsKernel for rows, table and result of different dtypes in memory, such as f32
// rows for a bfloat16 cache.
func storedScatterRows(r *run, l *ir.Launch) func() error {
	const stretch = 512 // elements
	var table, rows, dst values
	var index []int32
	var width int
	whole := func(lo, hi int) { dst.move(lo, &table, lo, hi-lo) }
	part := func(t int) {
		lo, hi := t*stretch, min(width, t*stretch+stretch)
		for i, at := range index {
			if at >= 0 {
				dst.move(int(at)*width+lo, &rows, i*width+lo, hi-lo)
			}
		}
	}
	return func() (err error) {
		table, rows, dst = r.values(l.In[0]), r.values(l.In[1]), r.values(l.Out[0])
		if index, err = r.scatterIndex(l); err != nil || dst.n == 0 {
			return err
		}
		if !l.In[0].Same(l.Out[0]) {
			r.elements(dst.n, whole)
		}
		width = dst.n / r.axis(l.Out[0], 0)
		r.dev.pool.Run((width+stretch-1)/stretch, part)
		return nil
	}
}

// scatterIndex returns the index of a ScatterRows launch.
func (r *run) scatterIndex(l *ir.Launch) ([]int32, error) {
	index, have := r.i32(l.In[2]), r.axis(l.Out[0], 0)
	for i, at := range index {
		if int(at) >= have {
			return nil, fmt.Errorf("index %d at %d, the table has %d rows", at, i, have)
		}
	}
	return index, nil
}
