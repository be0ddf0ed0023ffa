package ir

import (
	"fmt"
	"slices"
)

// NormAttr holds the epsilon that is added to the mean square of a row.
type NormAttr struct{ Eps float32 }

var _ = define(RMSNorm, OpDef{Name: "RMSNorm", Doc: "x · rsqrt(mean(x²)+eps) · w along the last axis (Zhang and Sennrich 2019, arXiv 1910.07467)",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if in[0].Rank() == 0 || in[0].Last().Var != 0 || !in[1].Equal(f32(Shape{in[0].Last()})) || !in[0].Equal(f32(in[0].Shape)) {
			return nil, fmt.Errorf("expected f32 x [...,d] and w [d]")
		}
		return in[:1], nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		x, w := in[0], in[1]
		return []Value{g.Mul(g.Mul(x, g.rmsInverse(x, attr.(NormAttr).Eps)), w)}
	},
	Gradient: func(b *Backward) {
		g, dy, eps := b.G, b.Dy(0), b.Attr.(NormAttr).Eps
		if b.Needs(0) {
			b.Acc(0, g.Apply(RMSNormGrad, NormAttr{eps}, dy, b.In(0), b.In(1)))
		}
		if b.Needs(1) {
			x := b.In(0)
			b.Acc(1, g.SumTo(g.Mul(dy, g.Mul(x, g.rmsInverse(x, eps))), b.InType(1).Shape))
		}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 4 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

var _ = define(RMSNormGrad, OpDef{Name: "RMSNormGrad", Doc: "the gradient of RMSNorm for x, from dy, x and w",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if !in[0].Equal(in[1]) || in[0].Last().Var != 0 || !in[2].Equal(f32(Shape{in[0].Last()})) {
			return nil, fmt.Errorf("expected dy and x of one type and w [d]")
		}
		return in[:1], nil
	},
	// r = rsqrt(mean(x²)+eps), n = x·r, u = dy·w: dx = r·(u − n·mean(u·n)).
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		dy, x, w := in[0], in[1], in[2]
		r := g.rmsInverse(x, attr.(NormAttr).Eps)
		n, u := g.Mul(x, r), g.Mul(dy, w)
		return []Value{g.Mul(r, g.Sub(u, g.Mul(n, g.rowMean(g.Mul(u, n)))))}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 8 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

var _ = define(Softmax, OpDef{Name: "Softmax", Doc: "exp(x − max) / Σ exp(x − max) along the last axis",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		if in[0].Rank() == 0 || !in[0].Equal(f32(in[0].Shape)) {
			return nil, fmt.Errorf("expected f32 with an axis")
		}
		return in[:1], nil
	},
	Decompose: func(g *Graph, _ any, in []Value) []Value {
		e := g.Unary(Exp, g.Sub(in[0], g.keepReduce(ReduceMax, in[0])))
		return []Value{g.Div(e, g.keepReduce(ReduceSum, e))}
	},
	Gradient: func(b *Backward) {
		g, y, dy := b.G, b.Out(0), b.Dy(0)
		b.Acc(0, g.Mul(y, g.Sub(dy, g.keepReduce(ReduceSum, g.Mul(dy, y)))))
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 5 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

// RMSNorm scales each row of x to a mean square of one and multiplies by w.
func (g *Graph) RMSNorm(x, w Value, eps float32) Value {
	return g.Apply(RMSNorm, NormAttr{eps}, x, w)
}

// Softmax computes the softmax along the last axis of x.
func (g *Graph) Softmax(x Value) Value { return g.Apply(Softmax, nil, x) }

func (g *Graph) rmsInverse(x Value, eps float32) Value {
	return g.Unary(Rsqrt, g.AddScalar(g.rowMean(g.Mul(x, x)), float64(eps)))
}

// rowMean computes the mean along the last axis and keeps the axis with size one.
func (g *Graph) rowMean(x Value) Value {
	if x == 0 {
		return 0
	}
	return g.Scale(g.keepReduce(ReduceSum, x), 1/float64(g.Type(x).Last().N))
}

// keepReduce reduces the last axis and keeps it with size one.
func (g *Graph) keepReduce(fn ReduceFn, x Value) Value {
	if x == 0 {
		return 0
	}
	s := slices.Clone(g.Type(x).Shape)
	s[len(s)-1] = Static(1)
	return g.Reshape(g.Reduce(fn, x, len(s)-1), s)
}
