package cpu

import (
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/tensor"
)

func dequantizeKernel(r *run, l *ir.Launch) func() error {
	a, s := l.Attr.(ir.DequantizeAttr), l.In[0].Type.Shape
	height, columns := s[len(s)-2].N, s[len(s)-1].N
	scales := a.Scales(s)
	down, across := scales[len(s)-2].N, scales[len(s)-1].N
	var fail error
	var w []byte
	var scale, out []float32
	part := func(lo, hi int) {
		if err := tensor.ToFloat32(out[lo*columns:hi*columns], w[lo*columns:hi*columns], tensor.F8E4M3); err != nil {
			fail = err
			return
		}
		for row := lo; row < hi; row++ {
			to := out[row*columns:][:columns]
			for _, x := range scale[(row/height*down+row%height/a.Rows)*across:][:across] {
				block := to[:min(a.Columns, len(to))]
				vec.Scale(block, x, block)
				to = to[len(block):]
			}
		}
	}
	return func() error {
		fail, w, scale, out = nil, r.bytes(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		r.rows(s[:len(s)-1].Elements(r.dims), columns, part)
		return fail
	}
}
