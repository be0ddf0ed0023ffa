package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/attention"
	"github.com/lorafuse/lorafuse/ir"
)

func (r *run) attentionSpec(a ir.AttentionAttr, k, lo, hi ir.Ref) *attention.Spec {
	keys, _ := r.matrix(k)
	return &attention.Spec{
		QHeads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim, Keys: keys,
		Scale: a.Scale, Window: a.Window, Lo: r.i32(lo), Hi: r.i32(hi),
	}
}

func (r *run) attentionRows(v ir.Ref) attention.Rows {
	return attention.Rows{Data: r.f32(v), Stride: v.Type.Last().N}
}

func attentionKernel(r *run, l *ir.Launch) error {
	s := r.attentionSpec(l.Attr.(ir.AttentionAttr), l.In[1], l.In[3], l.In[4])
	return r.dev.attention.Forward(s, r.attentionRows(l.Out[0]), r.f32(l.Out[1]),
		r.attentionRows(l.In[0]), r.attentionRows(l.In[1]), r.attentionRows(l.In[2]))
}

func attentionGradKernel(r *run, l *ir.Launch) error {
	s := r.attentionSpec(l.Attr.(ir.AttentionAttr), l.In[2], l.In[6], l.In[7])
	rows := make([]attention.Rows, 5)
	for i := range rows {
		rows[i] = r.attentionRows(l.In[i])
	}
	grad := attention.Gradients{Q: r.attentionRows(l.Out[0]), K: r.attentionRows(l.Out[1]), V: r.attentionRows(l.Out[2])}
	return r.dev.attention.Backward(s, grad, rows[0], rows[1], rows[2], rows[3], rows[4], r.f32(l.In[5]))
}

// flops is the work of a launch where shapes do not tell: of attention, by the
// keys that its queries see. 0 for all others.
func (r *run) flops(l *ir.Launch) int {
	var lo, hi ir.Ref
	switch l.Op {
	case ir.Attention:
		lo, hi = l.In[3], l.In[4]
	case ir.AttentionGrad:
		lo, hi = l.In[6], l.In[7]
	default:
		return 0
	}
	a := l.Attr.(ir.AttentionAttr)
	return ir.AttentionFlops(l.Op, a, a.Pairs(r.i32(lo), r.i32(hi)))
}
