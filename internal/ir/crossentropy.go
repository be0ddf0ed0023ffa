package ir

import (
	"fmt"

	"github.com/lorafuse/lorafuse/tensor"
)

var scalar = f32(Shape{})

// CrossEntropyAttr selects one loss per row, [n], with zero for rows without a label, instead of the sum. A nil
// attribute means the sum.
type CrossEntropyAttr struct{ ByRow bool }

func byRow(attr any) bool {
	a, _ := attr.(CrossEntropyAttr)
	return a.ByRow
}

var _ = define(CrossEntropy, OpDef{Name: "CrossEntropy", Doc: "Σ (logsumexp(logits) − logits[label]) over the rows of logits [n,v] whose label [n] is not negative; the sum, or by row",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if err := checkLogits(in[0], in[1]); err != nil {
			return nil, err
		}
		if byRow(attr) {
			return []Type{f32(in[0].Shape[:1])}, nil
		}
		return []Type{scalar}, nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		if byRow(attr) {
			return []Value{g.losses(in[0], in[1])}
		}
		return []Value{g.Reduce(ReduceSum, g.losses(in[0], in[1]), 0)}
	},
	Gradient: func(b *Backward) {
		if b.Needs(0) {
			b.Acc(0, b.G.lossGrad(b.Attr, b.In(0), b.In(1), b.Dy(0)))
		}
	},
	Flops: func(_ any, in, _ []Type, dims []int) int { return 4 * in[0].Shape.Elements(dims) },
})

var _ = define(CrossEntropyGrad, OpDef{Name: "CrossEntropyGrad", Doc: "the gradient dloss · (softmax(logits) − onehot(label)) of CrossEntropy, zero in rows without a label",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if !in[2].Equal(scalar) {
			return nil, fmt.Errorf("dloss %v, expected %v", in[2], scalar)
		}
		return in[:1], checkLogits(in[0], in[1])
	},
	Decompose: func(g *Graph, _ any, in []Value) []Value {
		x, labels, dloss := in[0], in[1], in[2]
		t, n := g.Type(x), g.Type(labels).Shape[0]
		d := g.Sub(g.Softmax(x), g.Where(g.isLabel(x, labels), g.Const(1, t), g.Const(0, t)))
		valid := g.Compare(GreaterEqual, labels, g.Const(0, g.Type(labels)))
		return []Value{g.Mul(g.Where(g.Reshape(valid, Shape{n, Static(1)}), d, g.Const(0, t)), dloss)}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 6 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

var _ = define(LinearCrossEntropy, OpDef{Name: "LinearCrossEntropy",
	Doc:   "CrossEntropy of the logits x Wᵀ, x [n,d], W [v,d], a few rows at a time: the logits of the whole batch never exist; the sum, or by row",
	Infer: func(attr any, in []Type) ([]Type, error) { return inferLinearCE(attr, in, 3) },
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		return []Value{g.lossOf(attr, g.Linear(in[0], in[1], 0), in[2])}
	},
	Gradient: func(b *Backward) {
		g, x, w, labels := b.G, b.In(0), b.In(1), b.In(2)
		if !b.Needs(1) {
			b.Acc(0, g.Apply(LinearCrossEntropyGrad, b.Attr, x, w, labels, b.Dy(0)))
			return
		}
		d := g.lossGrad(b.Attr, g.Linear(x, w, 0), labels, b.Dy(0))
		if b.Needs(0) {
			b.Acc(0, g.MatMul(d, w, false, false))
		}
		b.Acc(1, g.MatMul(d, x, true, false))
	},
	Flops: func(_ any, in, _ []Type, dims []int) int {
		return 2 * in[0].Shape.Elements(dims) * in[1].Shape[0].N
	},
})

var _ = define(LinearCrossEntropyGrad, OpDef{Name: "LinearCrossEntropyGrad",
	Doc: "the gradient of LinearCrossEntropy for x, and as second output the loss itself, from x, W, labels and dloss",
	Infer: func(attr any, in []Type) ([]Type, error) {
		out, err := inferLinearCE(attr, in, 4)
		if err != nil {
			return nil, err
		}
		if !in[3].Equal(out[0]) {
			return nil, fmt.Errorf("dloss %v, expected %v", in[3], out[0])
		}
		return []Type{in[0], out[0]}, nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		logits := g.Linear(in[0], in[1], 0)
		d := g.lossGrad(attr, logits, in[2], in[3])
		return []Value{g.MatMul(d, in[1], false, false), g.lossOf(attr, logits, in[2])}
	},
	Flops: func(_ any, in, _ []Type, dims []int) int {
		return 4 * in[0].Shape.Elements(dims) * in[1].Shape[0].N
	},
})

func checkLogits(x, labels Type) error {
	if x.Rank() != 2 || x.DType != tensor.F32 || x.Shape[1].Var != 0 || !labels.Equal(Type{tensor.I32, x.Shape[:1]}) {
		return fmt.Errorf("expected f32 logits [n,v] and i32 labels [n]")
	}
	return nil
}

func inferLinearCE(attr any, in []Type, n int) ([]Type, error) {
	if len(in) != n {
		return nil, arity(n, in)
	}
	x, w, labels := in[0], in[1], in[2]
	if x.Rank() != 2 || x.DType != tensor.F32 || w.Rank() != 2 || !isWeight(w.DType) || x.Shape[1] != w.Shape[1] ||
		w.Shape[0].Var != 0 || !labels.Equal(Type{tensor.I32, x.Shape[:1]}) {
		return nil, fmt.Errorf("expected f32 x [n,d], an F32, BF16, F16 or quantised W [v,d] and i32 labels [n]")
	}
	if byRow(attr) {
		return []Type{f32(x.Shape[:1])}, nil
	}
	return []Type{scalar}, nil
}

// losses computes the loss of each row of logits, [n], with zero for rows without a label.
func (g *Graph) losses(x, labels Value) Value {
	z := g.Sub(x, g.keepReduce(ReduceMax, x))
	lse := g.Unary(Log, g.keepReduce(ReduceSum, g.Unary(Exp, z)))
	loss := g.Sub(lse, g.keepReduce(ReduceSum, g.Where(g.isLabel(x, labels), z, g.Const(0, g.Type(z)))))
	n := g.Type(labels).Shape[0]
	valid := g.Compare(GreaterEqual, labels, g.Const(0, g.Type(labels)))
	return g.Where(valid, g.Reshape(loss, Shape{n}), g.Const(0, f32(Shape{n})))
}

// lossOf computes the loss of logits, per row or summed.
func (g *Graph) lossOf(attr any, logits, labels Value) Value {
	if byRow(attr) {
		return g.losses(logits, labels)
	}
	return g.CrossEntropy(logits, labels)
}

// lossGrad computes the gradient of lossOf with respect to the logits.
func (g *Graph) lossGrad(attr any, logits, labels, dloss Value) Value {
	if !byRow(attr) {
		return g.Apply(CrossEntropyGrad, nil, logits, labels, dloss)
	}
	n := g.Type(labels).Shape[0]
	return g.Mul(g.Apply(CrossEntropyGrad, nil, logits, labels, g.Const(1, scalar)), g.Reshape(dloss, Shape{n, Static(1)}))
}

// isLabel computes a mask that is true at [i, labels[i]].
func (g *Graph) isLabel(x, labels Value) Value {
	s := g.Type(x).Shape
	return g.Compare(Equal, g.Iota(1, s), g.Reshape(labels, Shape{s[0], Static(1)}))
}

// CrossEntropy computes the summed loss of the rows of logits that have a label.
func (g *Graph) CrossEntropy(logits, labels Value) Value {
	return g.Apply(CrossEntropy, nil, logits, labels)
}

// CrossEntropyByRow computes the loss of each row of logits, [n], with zero for rows without a label.
func (g *Graph) CrossEntropyByRow(logits, labels Value) Value {
	return g.Apply(CrossEntropy, CrossEntropyAttr{ByRow: true}, logits, labels)
}

// LinearCrossEntropy computes the summed loss of the logits x Wᵀ.
func (g *Graph) LinearCrossEntropy(x, w, labels Value) Value {
	return g.Apply(LinearCrossEntropy, nil, x, w, labels)
}

// LinearCrossEntropyByRow computes the loss of each row of the logits x Wᵀ, [n], with zero for rows without a label.
func (g *Graph) LinearCrossEntropyByRow(x, w, labels Value) Value {
	return g.Apply(LinearCrossEntropy, CrossEntropyAttr{ByRow: true}, x, w, labels)
}
