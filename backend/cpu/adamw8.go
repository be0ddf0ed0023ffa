package cpu

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// adamW8Kernel returns a step of AdamW with 8-bit moments that runs blocks in parallel. Only codes, scales and the
// parameter are stored in memory.
func adamW8Kernel(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.AdamWAttr)
	var s ir.AdamW8State
	var g, rates []float32
	var scale float32
	var signed, unsigned *quant.Dynamic
	part := func(lo, hi int) {
		for block := lo; block < hi; block++ {
			s.Block(block, a, g, signed, unsigned, [3]float32(rates), scale)
		}
	}
	return func() error {
		for i := range l.Out {
			if dst, src := r.bytes(l.Out[i]), r.bytes(l.In[i]); len(dst) > 0 && &src[0] != &dst[0] {
				copy(dst, src)
			}
		}
		rates, scale = r.f32(l.In[7]), r.f32(l.In[8])[0]
		if math.IsNaN(float64(scale)) || math.IsInf(float64(scale), 0) {
			return nil
		}
		g = r.f32(l.In[5])
		signed, unsigned = ir.AdamW8Codebooks(r.f32(l.In[6]))
		s = ir.AdamW8State{P: r.f32(l.Out[0]), M: r.bytes(l.Out[1]), V: r.bytes(l.Out[2]), MScale: r.f32(l.Out[3]), VScale: r.f32(l.Out[4])}
		r.rows(len(s.MScale), quant.DynamicBlock, part)
		return nil
	}
}
