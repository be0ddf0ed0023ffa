package ir

import (
	"fmt"
	"math"
)

// Activation is an activation function of a feed-forward block, gated or not.
type Activation uint8

// Activations of [GLU] and [Activate].
const (
	SiLU Activation = iota
	GELU
	GELUTanh
	QuickGELU // x·σ(1.702x), as in CLIP (Hendrycks and Gimpel 2016, arXiv 1606.08415)
	ReLU      // max(x, 0)
)

// String returns the name of the activation.
func (a Activation) String() string {
	return [...]string{"silu", "gelu", "gelu_tanh", "quick_gelu", "relu"}[a]
}

// GLUAttr holds the activation of the gate.
type GLUAttr struct{ Act Activation }

var _ = define(GLU, OpDef{Name: "GLU", Doc: "act(gate) · up (Shazeer 2020, arXiv 2002.05202): SwiGLU with silu, GeGLU with gelu",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if !in[0].Equal(in[1]) || !in[0].Equal(f32(in[0].Shape)) {
			return nil, fmt.Errorf("expected f32 gate and up of one shape")
		}
		return in[:1], nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		act, _ := g.activation(attr.(GLUAttr).Act, in[0])
		return []Value{g.Mul(act, in[1])}
	},
	Gradient: func(b *Backward) {
		d := b.G.Apply(GLUGrad, b.Attr, b.Dy(0), b.In(0), b.In(1))
		for i := range 2 {
			if b.Needs(i) {
				b.Acc(i, b.G.Out(d, i))
			}
		}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 6 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

var _ = define(GLUGrad, OpDef{Name: "GLUGrad", Doc: "the gradients of GLU for gate and up, from dy, gate and up",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if !in[0].Equal(in[1]) || !in[0].Equal(in[2]) {
			return nil, fmt.Errorf("expected dy, gate and up of one type")
		}
		return in[1:], nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		dy, gate, up := in[0], in[1], in[2]
		act, slope := g.activation(attr.(GLUAttr).Act, gate)
		return []Value{g.Mul(g.Mul(dy, up), slope), g.Mul(dy, act)}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 12 * in[0].Shape.Elements(dims) },
	InPlace: func(_ any, i int) int { return i + 1 },
})

// GLU computes act(gate) · up.
func (g *Graph) GLU(gate, up Value, act Activation) Value {
	return g.Apply(GLU, GLUAttr{act}, gate, up)
}

// activation returns act(x) and its derivative.
func (g *Graph) activation(a Activation, x Value) (act, slope Value) {
	switch a {
	case ReLU:
		zero := g.Const(0, f32(Shape{}))
		return g.Binary(Max, x, zero), g.Where(g.Compare(Less, zero, x), g.Const(1, f32(Shape{})), zero)
	case SiLU:
		s := g.Unary(Sigmoid, x)
		act = g.Mul(x, s)
		// s + x·s·(1−s)
		return act, g.Add(s, g.Mul(act, g.AddScalar(g.Unary(Neg, s), 1)))
	case QuickGELU:
		const c = 1.702
		s := g.Unary(Sigmoid, g.Scale(x, c))
		act = g.Mul(x, s)
		// s + c·x·s·(1−s)
		return act, g.Add(s, g.Scale(g.Mul(act, g.AddScalar(g.Unary(Neg, s), 1)), c))
	case GELU:
		// Φ(x) + x·φ(x)
		cdf := g.Scale(g.AddScalar(g.Unary(Erf, g.Scale(x, math.Sqrt2/2)), 1), 0.5)
		pdf := g.Scale(g.Unary(Exp, g.Scale(g.Mul(x, x), -0.5)), 1/math.Sqrt(2*math.Pi))
		return g.Mul(x, cdf), g.Add(cdf, g.Mul(x, pdf))
	}
	// ½(1 + tanh(c(x + 0.044715x³)))
	c := math.Sqrt(2 / math.Pi)
	xx := g.Mul(x, x)
	t := g.Unary(Tanh, g.Mul(x, g.AddScalar(g.Scale(xx, c*0.044715), c)))
	half := g.Scale(g.AddScalar(t, 1), 0.5)
	inner := g.AddScalar(g.Scale(xx, 3*c*0.044715), c)
	d := g.Mul(g.Mul(x, g.AddScalar(g.Unary(Neg, g.Mul(t, t)), 1)), g.Scale(inner, 0.5))
	return g.Mul(x, half), g.Add(half, d)
}
