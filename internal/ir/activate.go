package ir

import "fmt"

// ActivateAttr holds the activation function of an Activate.
type ActivateAttr struct{ Act Activation }

var _ = define(Activate, OpDef{Name: "Activate", Doc: "act(x), element by element: the middle of a feed-forward block without a gate",
	Infer: func(_ any, in []Type) ([]Type, error) { return inferActivate(in, 1) },
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		act, _ := g.activation(attr.(ActivateAttr).Act, in[0])
		return []Value{act}
	},
	Gradient: func(b *Backward) { b.Acc(0, b.G.Apply(ActivateGrad, b.Attr, b.Dy(0), b.In(0))) },
	Flops:    func(_ any, in, _ []Type, dims []int) int { return 5 * in[0].Shape.Elements(dims) },
	InPlace:  func(any, int) int { return 0 },
})

var _ = define(ActivateGrad, OpDef{Name: "ActivateGrad", Doc: "the gradient of Activate, from dy and x",
	Infer: func(_ any, in []Type) ([]Type, error) { return inferActivate(in, 2) },
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		_, slope := g.activation(attr.(ActivateAttr).Act, in[1])
		return []Value{g.Mul(in[0], slope)}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 8 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 1 },
})

// inferActivate requires exactly values inputs, all f32 of one shape.
func inferActivate(in []Type, values int) ([]Type, error) {
	if len(in) != values {
		return nil, arity(values, in)
	}
	for _, t := range in {
		if !t.Equal(f32(in[0].Shape)) {
			return nil, fmt.Errorf("expected f32 of one shape")
		}
	}
	return in[:1], nil
}

// Activate computes act(x), element by element.
func (g *Graph) Activate(x Value, act Activation) Value {
	return g.Apply(Activate, ActivateAttr{act}, x)
}
