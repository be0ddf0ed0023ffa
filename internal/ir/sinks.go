package ir

import "fmt"

const sinksDoc = "Attention in which each head has a sink, f32 [heads], the last input: a score that takes part in the softmax and has no value " +
	"(OpenAI 2025, arXiv 2508.10925); second output: log-sum-exp [n,heads] with the sink"

// The softmax with the sink s is the one without it, times g = sigmoid(lse − s). With do for the output o·g and the
// log-sum-exp with the sink, AttentionGrad gives the gradients as of any other softmax.
var _ = define(SinkAttention, OpDef{Name: "SinkAttention", Doc: sinksDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(AttentionAttr)
		if len(in) < 6 {
			return nil, arity(6, in)
		}
		if a.Bias != NoBias {
			return nil, fmt.Errorf("a bias of scores beside sinks")
		}
		if last := in[len(in)-1]; !last.Equal(f32(ShapeOf(a.Heads))) {
			return nil, fmt.Errorf("sinks %v, expected f32 [%d]", last, a.Heads)
		}
		return Def(Attention).Infer(attr, in[:len(in)-1])
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, sinks := attr.(AttentionAttr), in[len(in)-1]
		o, lse := g.Attention(in[0], in[1], in[2], in[3], in[4], a, in[5:len(in)-1]...)
		if o == 0 {
			return []Value{0, 0}
		}
		s := g.Type(o).Shape
		share := g.Reshape(g.Unary(Sigmoid, g.Sub(lse, sinks)), Shape{s[0], Static(a.Heads), Static(1)})
		heads := g.Reshape(o, Shape{s[0], Static(a.Heads), Static(a.HeadDim)})
		m := g.Binary(Max, lse, sinks)
		all := g.Add(m, g.Unary(Log, g.Add(g.Unary(Exp, g.Sub(lse, m)), g.Unary(Exp, g.Sub(sinks, m)))))
		return []Value{g.Reshape(g.Mul(heads, share), s), all}
	},
	Gradient: func(b *Backward) {
		g, a := b.G, b.Attr.(AttentionAttr)
		if b.Dy(1) != 0 {
			g.Fail(fmt.Errorf("no gradient flows from the log-sum-exp of SinkAttention"))
		}
		if b.Dy(0) == 0 {
			return
		}
		if a.Page > 0 {
			g.Fail(fmt.Errorf("SinkAttention has no gradient where keys lie in pages"))
			return
		}
		d := g.Apply(AttentionGrad, a, b.Dy(0), b.In(0), b.In(1), b.In(2), b.Out(0), b.Out(1), b.In(3), b.In(4))
		for i := range 3 {
			if b.Needs(i) {
				b.Acc(i, g.Out(d, i))
			}
		}
		if b.Needs(5) { // d/ds = −exp(s − lse)·Σ do·o, summed over the queries
			s := g.Type(b.Out(0)).Shape
			dot := g.Reduce(ReduceSum, g.Reshape(g.Mul(b.Dy(0), b.Out(0)), Shape{s[0], Static(a.Heads), Static(a.HeadDim)}), 2)
			b.Acc(5, g.Scale(g.Reduce(ReduceSum, g.Mul(g.Unary(Exp, g.Sub(b.In(5), b.Out(1))), dot), 0), -1))
		}
	},
	Flops: func(attr any, in, outs []Type, dims []int) int {
		return Def(Attention).Flops(attr, in[:len(in)-1], outs, dims)
	},
})

// SinkAttention computes Attention with a sink for each head. pages is the page table if a.Page is set.
func (g *Graph) SinkAttention(q, k, v, lo, hi, sinks Value, a AttentionAttr, pages ...Value) (o, lse Value) {
	o = g.Apply(SinkAttention, a, append(append([]Value{q, k, v, lo, hi}, pages...), sinks)...)
	return o, g.Out(o, 1)
}
