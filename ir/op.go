package ir

import (
	"fmt"
)

// Op is one of the closed set of operations.
type Op uint8

// Primitives: every backend has all of them.
const (
	Invalid Op = iota
	Param
	Out
	Const
	Iota
	Philox
	Cast
	Unary
	Binary
	Compare
	Where
	Reduce
	ArgMax
	Gemm
	Reshape
	Detach
	Transpose
	Broadcast
	Slice
	Concat
	GatherRows
	ScatterAddRows
	UpdateRows

	firstComposite
)

// Composites: a backend claims one, or gets its decomposition.
const (
	RMSNorm Op = firstComposite + iota
	RMSNormGrad
	LayerNorm
	LayerNormGrad
	GroupNorm
	Conv2D
	Softmax
	TopK
	ScatterRows
	RowsGemm
	RowsGemmGrad
	RoPETable
	RoPE
	Attention
	AttentionGrad
	Activate
	ActivateGrad
	GLU
	GLUGrad
	Dropout
	LoRADown
	LoRADownGrad
	LoRADownInputGrad
	CrossEntropy
	CrossEntropyGrad
	LinearCrossEntropy
	LinearCrossEntropyGrad
	SumSquares
	AdamW
	AdamW8

	numOps
)

// OpDef is all that is known of one operation.
type OpDef struct {
	Name string
	Doc  string
	// Infer checks attributes and inputs and gives the types of the outputs.
	Infer func(attr any, in []Type) ([]Type, error)
	// Gradient adds to the gradients of the inputs; nil means that the
	// decomposition is differentiated, or that no gradient flows.
	Gradient func(b *Backward)
	// Decompose rewrites a composite into simpler operations, one value for
	// each output.
	Decompose func(g *Graph, attr any, in []Value) []Value
	// Reference computes the outputs in float64. A composite without one is
	// computed by its decomposition.
	Reference func(attr any, in []*Host, outs []*Host)
	// Flops counts the floating-point operations for the run-time values
	// dims; nil means one for each element of the first output.
	Flops func(attr any, in []Type, outs []Type, dims []int) int
	// Bytes counts what is read and written; nil means inputs and outputs, whole.
	Bytes func(in []Type, outs []Type, dims []int) int
	// InPlace gives, for output i, the input whose memory it may overwrite,
	// or -1. Nil means none.
	InPlace func(attr any, output int) int
	// NoGradient says that gradients stop here on purpose.
	NoGradient bool
}

var defs [numOps]*OpDef

func define(op Op, d OpDef) struct{} {
	if defs[op] != nil {
		panic("ir: " + d.Name + " is defined twice")
	}
	defs[op] = &d
	return struct{}{}
}

// Def returns the definition of op.
func Def(op Op) *OpDef {
	if op >= numOps || defs[op] == nil {
		panic(fmt.Sprintf("ir: operation %d has no definition", uint8(op)))
	}
	return defs[op]
}

// Ops lists the operations in their order.
func Ops() []Op {
	var ops []Op
	for op := Op(1); op < numOps; op++ {
		ops = append(ops, op)
	}
	return ops
}

// IsComposite reports whether op decomposes into primitives.
func (op Op) IsComposite() bool { return op >= firstComposite && op < numOps }

// String is the operation's name.
func (op Op) String() string {
	if op < numOps && defs[op] != nil {
		return defs[op].Name
	}
	return fmt.Sprintf("Op(%d)", uint8(op))
}

// Cost is the number of floating-point operations and of bytes that a node
// reads and writes, for the run-time values dims.
func Cost(op Op, attr any, in, outs []Type, dims []int) (flops, bytes int) {
	d := Def(op)
	if d.Flops != nil {
		flops = d.Flops(attr, in, outs, dims)
	} else {
		flops = outs[0].Shape.Elements(dims)
	}
	if d.Bytes != nil {
		return flops, d.Bytes(in, outs, dims)
	}
	for _, t := range in {
		bytes += t.Bytes(dims)
	}
	for _, t := range outs {
		bytes += t.Bytes(dims)
	}
	return flops, bytes
}
