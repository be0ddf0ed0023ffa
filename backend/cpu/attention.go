package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/attention"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// attentionNeed is the largest attention of a program.
type attentionNeed struct{ queries, keys, heads, headDim int }

// attentionSpec prepares what describes an attention; the function fills it
// for a run.
func (r *run) attentionSpec(a ir.AttentionAttr, k, lo, hi ir.Ref) (*attention.Spec, func()) {
	s := &attention.Spec{QHeads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim, Scale: a.Scale, Window: a.Window, SoftCap: a.SoftCap}
	keys, _ := r.matrix(k)
	n := &r.need.scores
	n.queries, n.keys = max(n.queries, lo.Type.Shape.Elements(r.dims)), max(n.keys, keys)
	n.heads, n.headDim = max(n.heads, a.Heads), max(n.headDim, a.HeadDim)
	return s, func() {
		s.Keys, _ = r.matrix(k)
		s.Lo, s.Hi = r.i32(lo), r.i32(hi)
	}
}

func (r *run) attentionRows(v ir.Ref) attention.Rows {
	if v.Store == tensor.Invalid {
		return attention.Rows{Data: r.f32(v), Stride: v.Type.Last().N}
	}
	return attention.Rows{BF16: r.bytes(v), Stride: v.Type.Last().N}
}

// attentionBias is the bias of an attention, which is the last of its inputs.
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
	s, fill := r.attentionSpec(l.Attr.(ir.AttentionAttr), l.In[1], l.In[3], l.In[4])
	return func() error {
		fill()
		s.Bias = r.attentionBias(l)
		return r.dev.attention.Forward(s, r.attentionRows(l.Out[0]), r.f32(l.Out[1]),
			r.attentionRows(l.In[0]), r.attentionRows(l.In[1]), r.attentionRows(l.In[2]))
	}
}

func attentionGradKernel(r *run, l *ir.Launch) func() error {
	s, fill := r.attentionSpec(l.Attr.(ir.AttentionAttr), l.In[2], l.In[6], l.In[7])
	return func() error {
		fill()
		s.Bias = r.attentionBias(l)
		grad := attention.Gradients{Q: r.attentionRows(l.Out[0]), K: r.attentionRows(l.Out[1]), V: r.attentionRows(l.Out[2])}
		return r.dev.attention.Backward(s, grad, r.attentionRows(l.In[0]), r.attentionRows(l.In[1]), r.attentionRows(l.In[2]),
			r.attentionRows(l.In[3]), r.attentionRows(l.In[4]), r.f32(l.In[5]))
	}
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
