package ir

import (
	"fmt"
)

// Op identifies an operation of the closed set.
type Op uint8

// Primitives. Every backend implements all of them.
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

// Composites. A backend may claim one; otherwise it gets the decomposition.
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
	SinkAttention
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
	Dequantize
	SumSquares
	AdamW
	AdamW8

	numOps
)

// OpDef defines an operation.
type OpDef struct {
	Name string
	Doc  string
	// Infer checks attributes and inputs and returns the types of the outputs.
	Infer func(attr any, in []Type) ([]Type, error)
	// Gradient adds to the gradients of the inputs. If it is nil, the decomposition is differentiated, or no gradient
	// flows.
	Gradient func(b *Backward)
	// Decompose rewrites a composite in simpler operations and returns one value per output.
	Decompose func(g *Graph, attr any, in []Value) []Value
	// Reference computes the outputs in float64. A composite with a nil Reference is computed by its decomposition.
	Reference func(attr any, in []*Host, outs []*Host)
	// Flops counts the floating-point operations for the run-time values dims. Nil means one per element of the first
	// output.
	Flops func(attr any, in []Type, outs []Type, dims []int) int
	// Reads and Writes count the bytes read and written. Nil means all bytes of inputs and of outputs.
	Reads, Writes func(attr any, in []Type, outs []Type, dims []int) int
	// InPlace returns the index of the input whose memory output i may overwrite, or -1. Nil means none.
	InPlace func(attr any, output int) int
	// NoGradient marks an operation that stops gradients on purpose.
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

// Ops returns all operations in order.
func Ops() []Op {
	var ops []Op
	for op := Op(1); op < numOps; op++ {
		ops = append(ops, op)
	}
	return ops
}

// IsComposite reports whether op decomposes into primitives.
func (op Op) IsComposite() bool { return op >= firstComposite && op < numOps }

// String returns the name of the operation.
func (op Op) String() string {
	if op < numOps && defs[op] != nil {
		return defs[op].Name
	}
	return fmt.Sprintf("Op(%d)", uint8(op))
}

// Cost returns the number of floating-point operations of a node, and of bytes that it reads and writes, for the
// run-time values dims.
func Cost(op Op, attr any, in, outs []Type, dims []int) (flops, bytes int) {
	if d := Def(op); d.Flops != nil {
		flops = d.Flops(attr, in, outs, dims)
	} else {
		flops = outs[0].Shape.Elements(dims)
	}
	read, written := Traffic(op, attr, in, outs, dims)
	return flops, read + written
}

// Traffic returns the number of bytes that a node reads and writes for the run-time values dims.
func Traffic(op Op, attr any, in, outs []Type, dims []int) (read, written int) {
	d := Def(op)
	if d.Reads != nil {
		read = d.Reads(attr, in, outs, dims)
	} else {
		read = bytesOf(in, dims)
	}
	if d.Writes != nil {
		return read, d.Writes(attr, in, outs, dims)
	}
	return read, bytesOf(outs, dims)
}

func bytesOf(ts []Type, dims []int) (n int) {
	for _, t := range ts {
		n += t.Bytes(dims)
	}
	return n
}
