package ir

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

// DropoutAttr holds the probability of a zero and the number of the random stream. No two dropouts of a model may share
// a stream.
type DropoutAttr struct {
	P      float64
	Stream uint32
}

var _ = define(Dropout, OpDef{Name: "Dropout",
	Doc: "x/(1-p) where the random word of the element is at least p·2³², else 0; the key is one for all elements, or one for each row with the row's number in its own run; its own gradient, with the mask drawn again instead of kept, or kept as bits",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		return in[:1], checkDropout(attr.(DropoutAttr), in[0], in[1])
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, t := attr.(DropoutAttr), g.Type(in[0])
		words := g.Philox(in[1], a.Stream, t.Shape)
		keep := g.Compare(GreaterEqual, words, g.Const(float64(philox.Threshold(a.P)), Type{tensor.U32, Shape{}}))
		return []Value{g.Where(keep, g.Scale(in[0], 1/(1-a.P)), g.Const(0, t))}
	},
	Gradient: func(b *Backward) { b.Acc(0, b.G.Apply(Dropout, b.Attr, b.Dy(0), b.In(1))) },
	InPlace:  func(any, int) int { return 0 },
})

var _ = define(LoRADown, OpDef{Name: "LoRADown",
	Doc: "dropout(x) Aᵀ: the rank-sized half of a LoRA linear, x [n,in], A [rank,in]; dropped inputs are never stored",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if err := checkDropout(attr.(DropoutAttr), in[0], in[2]); err != nil {
			return nil, err
		}
		return inferGemm(GemmAttr{N: 1, P: [MaxProducts]ProductAttr{{TB: true}}}, in[:2])
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		return []Value{g.MatMul(g.Apply(Dropout, attr, in[0], in[2]), in[1], false, true)}
	},
	Gradient: func(b *Backward) {
		g, dh, key := b.G, b.Dy(0), b.In(2)
		if b.Needs(0) {
			b.Acc(0, g.Apply(LoRADownInputGrad, b.Attr, dh, b.In(1), key))
		}
		if b.Needs(1) {
			b.Acc(1, g.Apply(LoRADownGrad, b.Attr, dh, b.In(0), key))
		}
	},
	Flops: func(_ any, in, outs []Type, dims []int) int {
		return 2 * outs[0].Shape.Elements(dims) * in[0].Last().N
	},
})

var _ = define(LoRADownGrad, OpDef{Name: "LoRADownGrad", Doc: "the gradient dhᵀ dropout(x) of LoRADown for A, from dh, x and the key",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if err := checkDropout(attr.(DropoutAttr), in[1], in[2]); err != nil {
			return nil, err
		}
		return inferGemm(GemmAttr{N: 1, P: [MaxProducts]ProductAttr{{TA: true}}}, in[:2])
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		return []Value{g.MatMul(in[0], g.Apply(Dropout, attr, in[1], in[2]), true, false)}
	},
	Flops: func(_ any, in, _ []Type, dims []int) int {
		return 2 * in[1].Shape.Elements(dims) * in[0].Last().N
	},
})

var _ = define(LoRADownInputGrad, OpDef{Name: "LoRADownInputGrad", Doc: "the gradient dropout(dh A) of LoRADown for x, from dh, A and the key",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		outs, err := inferGemm(GemmAttr{N: 1}, in[:2])
		if err != nil {
			return nil, err
		}
		return outs, checkDropout(attr.(DropoutAttr), outs[0], in[2])
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		return []Value{g.Apply(Dropout, attr, g.MatMul(in[0], in[1], false, false), in[2])}
	},
	Flops: func(_ any, in, outs []Type, dims []int) int {
		return 2 * outs[0].Shape.Elements(dims) * in[0].Last().N
	},
})

func checkDropout(a DropoutAttr, x, key Type) error {
	if !(a.P >= 0 && a.P < 1) {
		return fmt.Errorf("dropout probability %v, expected 0 ≤ p < 1", a.P)
	}
	if x.DType != tensor.F32 {
		return fmt.Errorf("expected f32 x, got %v", x)
	}
	return checkKey(key, x.Shape)
}

// Dropout sets elements of x to zero with probability a.P and scales the rest by 1/(1−P).
func (g *Graph) Dropout(x, key Value, a DropoutAttr) Value {
	if a.P == 0 {
		return x
	}
	return g.Apply(Dropout, a, x, key)
}

// LoRADown computes dropout(x) Aᵀ; key may be zero if a.P is.
func (g *Graph) LoRADown(x, a, key Value, d DropoutAttr) Value {
	if d.P == 0 {
		return g.MatMul(x, a, false, true)
	}
	return g.Apply(LoRADown, d, x, a, key)
}
