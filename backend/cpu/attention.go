package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/attention"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// attentionSpec prepares the description of an attention over at most keys keys. The returned function fills it in
// for a run.
func (r *run) attentionSpec(a ir.AttentionAttr, keys int, k, lo, hi ir.Ref) (*attention.Spec, func()) {
	s := &attention.Spec{QHeads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim, Scale: a.Scale, Window: a.Window, SoftCap: a.SoftCap, Page: a.Page}
	r.need.scores = r.need.scores.With(attention.Sizes{Queries: lo.Type.Shape.Elements(r.dims), Keys: keys, Heads: a.Heads, HeadDim: a.HeadDim, Paged: a.Page > 0})
	return s, func() {
		s.Keys = r.axis(k, 0)
		s.Lo, s.Hi = r.i32(lo), r.i32(hi)
	}
}

func (r *run) attentionRows(v ir.Ref) attention.Rows {
	if v.Store == tensor.Invalid {
		return attention.Rows{Data: r.f32(v), Stride: v.Type.Last().N}
	}
	return attention.Rows{BF16: r.bytes(v), Stride: v.Type.Last().N}
}

// attentionBias returns the bias of an attention, the last of its inputs.
func (r *run) attentionBias(l *ir.Launch) (b attention.Bias) {
	kind, v := l.Attr.(ir.AttentionAttr).Bias, l.In[len(l.In)-1]
	if kind == ir.NoBias {
		return b
	}
	b.Data = r.f32(v)
	step := func(axis, elements int) int {
		if r.axis(v, axis) == 1 {
			return 0
		}
		return elements
	}
	if kind == ir.RelativeBias {
		b.Head, b.Relative = step(0, r.axis(v, 1)), r.axis(v, 1)/2
		return b
	}
	keys := r.axis(v, 2)
	b.Head, b.Query, b.Key = step(0, r.axis(v, 1)*keys), step(1, keys), step(2, 1)
	return b
}

func attentionKernel(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.AttentionAttr)
	keys := r.axis(l.In[1], 0)
	if a.Page > 0 {
		keys = r.axis(l.In[5], 0) * a.Page
	}
	s, fill := r.attentionSpec(a, keys, l.In[1], l.In[3], l.In[4])
	return func() error {
		fill()
		if a.Page > 0 {
			s.Pages = r.i32(l.In[5])
		}
		s.Bias = r.attentionBias(l)
		return r.dev.attention.Forward(s, r.attentionRows(l.Out[0]), r.f32(l.Out[1]),
			r.attentionRows(l.In[0]), r.attentionRows(l.In[1]), r.attentionRows(l.In[2]))
	}
}

func attentionGradKernel(r *run, l *ir.Launch) func() error {
	s, fill := r.attentionSpec(l.Attr.(ir.AttentionAttr), r.axis(l.In[2], 0), l.In[2], l.In[6], l.In[7])
	return func() error {
		fill()
		s.Bias = r.attentionBias(l)
		grad := attention.Gradients{Q: r.attentionRows(l.Out[0]), K: r.attentionRows(l.Out[1]), V: r.attentionRows(l.Out[2])}
		return r.dev.attention.Backward(s, grad, r.attentionRows(l.In[0]), r.attentionRows(l.In[1]), r.attentionRows(l.In[2]),
			r.attentionRows(l.In[3]), r.attentionRows(l.In[4]), r.f32(l.In[5]))
	}
}

// flops returns the work of launches whose shapes do not determine it: attention, by the keys that its queries see.
// It returns 0 for all others.
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
