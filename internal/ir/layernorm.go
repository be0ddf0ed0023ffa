package ir

import "fmt"

// LayerNormAttr holds the epsilon that is added to the variance of a row, and whether there are a weight and a bias.
type LayerNormAttr struct {
	Eps                float32
	HasWeight, HasBias bool
}

// inputs returns the number of inputs if before of them precede the weight and the bias.
func (a LayerNormAttr) inputs(before int) int {
	return before + boolIndex(a.HasWeight) + boolIndex(a.HasBias)
}

const layerNormDoc = "(x − mean) · rsqrt(variance+eps) · w + b along the last axis, the variance over all d elements as PyTorch's " +
	"layer_norm has it (Ba et al. 2016, arXiv 1607.06450); w and b may be absent"

var _ = define(LayerNorm, OpDef{Name: "LayerNorm", Doc: layerNormDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		return inferLayerNorm(attr.(LayerNormAttr), in, 1)
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a := attr.(LayerNormAttr)
		n, _ := g.standardised(in[0], a.Eps)
		if a.HasWeight {
			n = g.Mul(n, in[1])
		}
		if a.HasBias {
			n = g.Add(n, in[len(in)-1])
		}
		return []Value{n}
	},
	Gradient: func(b *Backward) {
		g, dy, a := b.G, b.Dy(0), b.Attr.(LayerNormAttr)
		if b.Needs(0) {
			in := []Value{dy, b.In(0)}
			if a.HasWeight {
				in = append(in, b.In(1))
			}
			b.Acc(0, g.Apply(LayerNormGrad, LayerNormAttr{Eps: a.Eps, HasWeight: a.HasWeight}, in...))
		}
		if a.HasWeight && b.Needs(1) {
			n, _ := g.standardised(b.In(0), a.Eps)
			b.Acc(1, g.SumTo(g.Mul(dy, n), b.InType(1).Shape))
		}
		if last := a.inputs(1) - 1; a.HasBias && b.Needs(last) {
			b.Acc(last, g.SumTo(dy, b.InType(last).Shape))
		}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 7 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

var _ = define(LayerNormGrad, OpDef{Name: "LayerNormGrad", Doc: "the gradient of LayerNorm for x, from dy, x and w where there is one",
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(LayerNormAttr)
		if a.HasBias {
			return nil, fmt.Errorf("a bias has no part in this gradient")
		}
		if len(in) > 1 && !in[0].Equal(in[1]) {
			return nil, fmt.Errorf("expected dy and x of one type")
		}
		return inferLayerNorm(a, in, 2)
	},
	// r = rsqrt(variance+eps), n = (x−mean)·r, u = dy·w: dx = r·(u − mean(u) − n·mean(u·n)).
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, u := attr.(LayerNormAttr), in[0]
		n, r := g.standardised(in[1], a.Eps)
		if a.HasWeight {
			u = g.Mul(u, in[2])
		}
		return []Value{g.Mul(r, g.Sub(g.Sub(u, g.rowMean(u)), g.Mul(n, g.rowMean(g.Mul(u, n)))))}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 11 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

// inferLayerNorm checks that the first inputs, values of them, have the type of x, and then the weight and the bias.
func inferLayerNorm(a LayerNormAttr, in []Type, values int) ([]Type, error) {
	if len(in) != a.inputs(values) {
		return nil, arity(a.inputs(values), in)
	}
	x := in[0]
	if x.Rank() == 0 || x.Last().Var != 0 || x.Last().N == 0 || !x.Equal(f32(x.Shape)) {
		return nil, fmt.Errorf("expected f32 x [...,d] with a fixed d")
	}
	for _, t := range in[values:] {
		if !t.Equal(f32(Shape{x.Last()})) {
			return nil, fmt.Errorf("expected weight and bias %v, got %v", f32(Shape{x.Last()}), t)
		}
	}
	return in[:1], nil
}

// standardised computes (x − mean)·r of rows, and r.
func (g *Graph) standardised(x Value, eps float32) (n, r Value) {
	c := g.Sub(x, g.rowMean(x))
	r = g.Unary(Rsqrt, g.AddScalar(g.rowMean(g.Mul(c, c)), float64(eps)))
	return g.Mul(c, r), r
}

// LayerNorm normalizes each row of x to mean 0 and variance 1, multiplies by w and adds b. w and b may be zero.
func (g *Graph) LayerNorm(x, w, b Value, eps float32) Value {
	in := []Value{x}
	if w != 0 {
		in = append(in, w)
	}
	if b != 0 {
		in = append(in, b)
	}
	return g.Apply(LayerNorm, LayerNormAttr{eps, w != 0, b != 0}, in...)
}
