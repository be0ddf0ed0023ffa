// Package ir defines the closed set of tensor operations, with their shape rules, gradients, decompositions and float64
// references. A [Graph] is built from operations; a [Program] is its executable form, which a backend runs.
//
// A [Graph] is plain data: nodes (operation, inputs, attributes, types) in a flat slice, and each [Value] is an index.
// Every backend implements the primitives. Composites (RMSNorm, attention, cross-entropy, ...) decompose into
// primitives, so a backend may implement them or not.
package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// MaxRank is the largest number of axes of a value.
const MaxRank = 4

// Var identifies a bounded dimension of a graph. Its size is known only when the program runs; its maximum is known at
// compile time. The zero Var is none.
type Var uint8

// Dim is the size of one axis: N if Var is zero, else N times the run-time value of Var.
type Dim struct {
	N   int
	Var Var
}

// Static returns an axis of n elements.
func Static(n int) Dim { return Dim{N: n} }

// Shape lists the axes of a value, outermost first. The empty shape is a scalar.
type Shape []Dim

// ShapeOf returns a shape of static axes.
func ShapeOf(dims ...int) Shape {
	s := make(Shape, len(dims))
	for i, d := range dims {
		s[i] = Static(d)
	}
	return s
}

// Equal reports whether both shapes have the same axes.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Resolve returns the sizes for the run-time values of the bounded dimensions; dims[v] is the value of Var v (dims[0]
// is not read).
func (s Shape) Resolve(dims []int) []int {
	out := make([]int, len(s))
	for i, d := range s {
		out[i] = d.Resolve(dims)
	}
	return out
}

// Elements returns the number of elements for the run-time values dims.
func (s Shape) Elements(dims []int) int {
	n := 1
	for _, d := range s {
		n *= d.Resolve(dims)
	}
	return n
}

// Resolve returns the size for the run-time values dims.
func (d Dim) Resolve(dims []int) int {
	if d.Var == 0 {
		return d.N
	}
	return d.N * dims[d.Var]
}

// Type is the element type and shape of a value.
type Type struct {
	DType tensor.DType
	Shape Shape
}

// Equal reports whether both types are the same.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && t.Shape.Equal(u.Shape) }

// Rank returns the number of axes.
func (t Type) Rank() int { return len(t.Shape) }

// Last returns the innermost axis, or an axis of one element for a scalar.
func (t Type) Last() Dim {
	if len(t.Shape) == 0 {
		return Static(1)
	}
	return t.Shape[len(t.Shape)-1]
}

// Bytes returns the size in memory for the run-time values dims.
func (t Type) Bytes(dims []int) int { return t.DType.Bytes(t.Shape.Elements(dims)) }

// String returns the type as text, for example f32[v1,64]; bounded axes are shown as v1, v2, ...
func (t Type) String() string { return strings.ToLower(t.DType.String()) + t.Shape.String() }

// String returns the shape as text, for example [v1,64].
func (s Shape) String() string {
	axes := make([]string, len(s))
	for i, d := range s {
		axes[i] = d.String()
	}
	return "[" + strings.Join(axes, ",") + "]"
}

// String returns the axis as text: a number, or v1 or 4*v1 if it is bounded.
func (d Dim) String() string {
	switch {
	case d.Var == 0:
		return fmt.Sprint(d.N)
	case d.N == 1:
		return fmt.Sprintf("v%d", d.Var)
	}
	return fmt.Sprintf("%d*v%d", d.N, d.Var)
}

// f32 returns the float32 type of a shape.
func f32(s Shape) Type { return Type{tensor.F32, s} }

// axes is a comparable copy of a shape, for attributes.
type axes struct {
	n int
	d [MaxRank]Dim
}

func axesOf(s Shape) axes {
	a := axes{n: len(s)}
	copy(a.d[:], s)
	return a
}

// shape returns the axes as a Shape. Axes beyond MaxRank are lost; see check.
func (a axes) shape() Shape { return slices.Clone(a.d[:min(a.n, MaxRank)]) }

func (a axes) check() error {
	if a.n > MaxRank {
		return fmt.Errorf("a shape of %d axes, at most %d", a.n, MaxRank)
	}
	return nil
}

// isNumber reports whether arithmetic is defined on elements of type d. All other types can only be stored, moved and
// cast.
func isNumber(d tensor.DType) bool { return d == tensor.F32 || d == tensor.I32 || d == tensor.U32 }

// isFactor reports whether a matrix of type d can be the first factor of a product.
func isFactor(d tensor.DType) bool { return d == tensor.F32 || d == tensor.BF16 || d == tensor.F16 }

// isWeight reports whether a matrix of type d, possibly quantized, can be the second factor of a product.
func isWeight(d tensor.DType) bool { return isFactor(d) || d.Quantized() }

// checkQuantized limits quantized values to the operations that handle their blocks.
func checkQuantized(op Op, in []Type) error {
	switch op {
	case Gemm, RowsGemm, RowsGemmGrad, LinearCrossEntropy, LinearCrossEntropyGrad, Cast:
		return nil
	}
	for _, t := range in {
		if t.DType.Quantized() && (op != GatherRows || !t.DType.Foreign()) {
			return fmt.Errorf("%v is quantised: it can be multiplied with, and cast", t)
		}
	}
	return nil
}

// checkType returns an error unless a value of the graph can have type t.
func (g *Graph) checkType(t Type) error {
	if t.DType.Size() == 0 && !t.DType.Quantized() {
		return fmt.Errorf("no element type")
	}
	if err := axesOf(t.Shape).check(); err != nil {
		return err
	}
	for i, d := range t.Shape {
		switch {
		case d.N < 0:
			return fmt.Errorf("axis %d of %v is negative", i, t)
		case int(d.Var) >= len(g.Bounds):
			return fmt.Errorf("axis %d of %v is bounded by a dimension of another graph", i, t)
		}
	}
	return nil
}
