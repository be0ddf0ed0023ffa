package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of scatter_rows in kernels/cuda and kernels/metal.

// rowWords are the sizes that elements of rows are written in.
var rowWords = [...]int{2, 4, 16}

// prepareScatterRows writes rows over a table, which is copied first unless the result is in place. The next launch is
// fused into this one if it writes rows of the same size at the same index, as that for the values of a cache does.
func prepareScatterRows(c *compiler, l *ir.Launch) (step, error) {
	if c.merged[c.launch] {
		return func(*Run) {}, nil
	}
	table, rows, index, out := l.In[0], l.In[1], l.In[2], l.Out[0]
	m, err := c.mover(out)
	if err != nil {
		return nil, err
	}
	var by [len(rowWords)]*Kernel
	for i, w := range rowWords {
		if w < out.Type.DType.Size() {
			continue
		}
		if by[i], err = c.kernel("scatter_rows", fmt.Sprintf("scatter_rows_b%d", w), elementThreads); err != nil {
			return nil, err
		}
	}
	c.refuse(func(r *Run, where, value int) error {
		return fmt.Errorf("index %d at %d, the table has %d rows", value, where, r.axis(out, 0))
	})
	twin, launch := c.twin(l), c.launch
	return func(r *Run) {
		m.skip()
		if !r.same(table, out) {
			m.all(r, out, table)
		}
		n, width := r.axis(index, 0), 0
		if v := r.axis(out, 0); v > 0 {
			width = r.count(out) / v * out.Type.DType.Size()
		}
		best := 0
		for i, w := range rowWords {
			if by[i] == nil {
				continue
			}
			by[i].skip()
			bits := r.at(out) | r.at(rows) | Pointer(width)
			if twin != nil {
				bits |= r.at(twin.Out[0]) | r.at(twin.In[1])
			}
			if bits%Pointer(w) == 0 {
				best = i
			}
		}
		k := by[best]
		if twin == nil {
			k.grid(n, 1, 1).pointer("out0", r.at(out)).pointer("x0", r.at(rows)).pointer("out1", 0).pointer("x1", 0)
		} else {
			k.grid(n, 2, 1).pointer("out0", r.at(out)).pointer("x0", r.at(rows)).pointer("out1", r.at(twin.Out[0])).pointer("x1", r.at(twin.In[1]))
		}
		k.pointer("index", r.at(index)).long("width", width/rowWords[best]).int("n", n).int("rows", r.axis(out, 0)).pointer("trap", r.Trap).int("launch", launch)
	}, nil
}

// twin returns the next launch if it runs as a part of l, which is being planned, and else nil.
func (c *compiler) twin(l *ir.Launch) *ir.Launch {
	if c.launch+1 == len(c.prog.Launches) {
		return nil
	}
	next := &c.prog.Launches[c.launch+1]
	if next.Op != ir.ScatterRows || !l.In[0].Same(l.Out[0]) || !next.In[0].Same(next.Out[0]) || !next.In[2].Same(l.In[2]) ||
		!next.Out[0].Type.Equal(l.Out[0].Type) || next.Conflicts(l, c.dims) {
		return nil
	}
	c.merged[c.launch+1] = true
	return next
}
