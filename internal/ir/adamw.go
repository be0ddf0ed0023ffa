package ir

import (
	"fmt"
	"math"
)

// AdamWAttr holds the constants of AdamW.
type AdamWAttr struct{ Beta1, Beta2, Eps float64 }

// Rates returns the run-time numbers of a step, of type AdamWRates. step counts from 1.
func (a AdamWAttr) Rates(rate, weightDecay float64, step int) [3]float32 {
	t := float64(step)
	return [3]float32{
		float32(1 - rate*weightDecay),
		float32(rate / (1 - math.Pow(a.Beta1, t))),
		float32(math.Sqrt(1 - math.Pow(a.Beta2, t))),
	}
}

var _ = define(SumSquares, OpDef{Name: "SumSquares", Doc: "Σ x² over all elements",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		if !in[0].Equal(f32(in[0].Shape)) {
			return nil, fmt.Errorf("expected f32")
		}
		return []Type{scalar}, nil
	},
	Decompose: func(g *Graph, _ any, in []Value) []Value {
		x := g.Mul(in[0], in[0])
		for x != 0 && g.Type(x).Rank() > 0 {
			x = g.Reduce(ReduceSum, x, g.Type(x).Rank()-1)
		}
		return []Value{x}
	},
	Gradient: func(b *Backward) { b.Acc(0, b.G.Mul(b.G.Scale(b.In(0), 2), b.Dy(0))) },
	Flops:    func(_ any, in, _ []Type, dims []int) int { return 2 * in[0].Shape.Elements(dims) },
})

// AdamWRates is the type of the run-time numbers of AdamW: 1 − lr·weight_decay,
// lr / (1 − β₁ᵗ) and √(1 − β₂ᵗ).
var AdamWRates = f32(ShapeOf(3))

var _ = define(AdamW, OpDef{Name: "AdamW", NoGradient: true,
	Doc: "one step of AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101) on p, m, v [any] with gradient g·scale; " +
		"nothing changes where scale is not finite",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 6 {
			return nil, arity(6, in)
		}
		for _, t := range in[:4] {
			if !t.Equal(f32(in[0].Shape)) {
				return nil, fmt.Errorf("expected f32 p, m, v and g of one shape")
			}
		}
		if !in[4].Equal(AdamWRates) || !in[5].Equal(scalar) {
			return nil, fmt.Errorf("expected rates %v and scale %v", AdamWRates, scalar)
		}
		return in[:3], nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, p, m, v := attr.(AdamWAttr), in[0], in[1], in[2]
		rate := func(i int) Value { return g.Reshape(g.Slice(in[4], 0, i, i+1), Shape{}) }
		grad := g.Mul(in[3], in[5])
		m2 := g.Add(g.Scale(m, a.Beta1), g.Scale(grad, 1-a.Beta1))
		v2 := g.Add(g.Scale(v, a.Beta2), g.Scale(g.Mul(grad, grad), 1-a.Beta2))
		denom := g.AddScalar(g.Div(g.Unary(Sqrt, v2), rate(2)), a.Eps)
		p2 := g.Sub(g.Mul(p, rate(0)), g.Div(g.Mul(m2, rate(1)), denom))
		ok := g.Compare(Greater, g.Unary(IsFinite, in[5]), g.Const(0, scalar))
		return []Value{g.Where(ok, p2, p), g.Where(ok, m2, m), g.Where(ok, v2, v)}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 14 * in[0].Shape.Elements(dims) },
	InPlace: func(_ any, i int) int { return i },
})

// SumSquares computes Σ x².
func (g *Graph) SumSquares(x Value) Value { return g.Apply(SumSquares, nil, x) }

// AdamW returns the parameter and its moments after one step.
func (g *Graph) AdamW(p, m, v, grad, rates, scale Value, a AdamWAttr) (p2, m2, v2 Value) {
	p2 = g.Apply(AdamW, a, p, m, v, grad, rates, scale)
	return p2, g.Out(p2, 1), g.Out(p2, 2)
}
