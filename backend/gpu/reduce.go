package gpu

import (
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of file reduce.

// shortRow is the longest row that one warp reduces.
const shortRow = 512

func prepareReduce(c *compiler, l *ir.Launch) (step, error) {
	a, in, out := l.Attr.(ir.ReduceAttr), l.In[0], l.Out[0]
	if in.Type.DType != tensor.F32 {
		return nil, unsupported("a reduction of %v", in.Type.DType)
	}
	var by [3]*Kernel
	for i, form := range []string{"warp", "row", "cols"} {
		var err error
		if by[i], err = c.kernel("reduce", "reduce_"+strings.ToLower(a.Fn.String())+"_"+form+"_f32", 256); err != nil {
			return nil, err
		}
	}
	warp, row, cols := by[0], by[1], by[2]
	return func(r *Run) {
		warp.skip()
		row.skip()
		cols.skip()
		outer, n, inner := r.around(in, a.Axis)
		switch {
		case inner == 1 && n <= shortRow:
			warp.grid(blocks(outer, 8), 1, 1).pointer("out", r.at(out)).pointer("x", r.at(in)).long("rows", outer).int("n", n)
		case inner == 1:
			row.grid(outer, 1, 1).pointer("out", r.at(out)).pointer("x", r.at(in)).long("n", n)
		default:
			cols.grid(blocks(inner, 32), min(outer, maxGrid), 1).pointer("out", r.at(out)).pointer("x", r.at(in)).long("outer", outer).long("n", n).long("inner", inner)
		}
	}, nil
}

func prepareArgMax(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	k, err := c.kernel("reduce", "argmax_f32", 256)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		rows := r.count(out)
		k.grid(blocks(rows, 8), 1, 1).pointer("out", r.at(out)).pointer("x", r.at(in)).long("rows", rows).int("n", r.axis(in, in.Type.Rank()-1))
	}, nil
}
