// Package ir is the closed set of operations that everything is computed with:
// their shape rules, gradients, decompositions and float64 references, the
// graph that they form, and the Program that a backend runs.
//
// A graph is data: a node is a row {op, inputs, attributes, types} in a flat
// slice and a [Value] is an index. Primitives are what every backend has;
// composites (RMSNorm, attention, cross-entropy, ...) decompose into
// primitives, so that a backend may claim them or not.
package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// MaxRank is the largest number of axes of a value.
const MaxRank = 4

// Var names a bounded dimension of a graph: a size that is known only when the
// program runs, up to a maximum that is known when it is compiled. The zero
// Var is none.
type Var uint8

// Dim is the size of one axis: N where Var is zero, else N times the run-time
// value of Var.
type Dim struct {
	N   int
	Var Var
}

// Static is an axis of n elements.
func Static(n int) Dim { return Dim{N: n} }

// Shape lists the axes of a value, outermost first. The empty shape is a scalar.
type Shape []Dim

// ShapeOf makes a shape of static axes.
func ShapeOf(dims ...int) Shape {
	s := make(Shape, len(dims))
	for i, d := range dims {
		s[i] = Static(d)
	}
	return s
}

// Equal reports whether both shapes have the same axes.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Resolve gives the sizes for the run-time values of the bounded dimensions;
// dims[v] is the value of Var v (dims[0] is not read).
func (s Shape) Resolve(dims []int) []int {
	out := make([]int, len(s))
	for i, d := range s {
		out[i] = d.Resolve(dims)
	}
	return out
}

// Elements is the number of elements for the run-time values dims.
func (s Shape) Elements(dims []int) int {
	n := 1
	for _, d := range s {
		n *= d.Resolve(dims)
	}
	return n
}

// Resolve gives the size for the run-time values dims.
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

// Rank is the number of axes.
func (t Type) Rank() int { return len(t.Shape) }

// Last is the innermost axis, or an axis of one element for a scalar.
func (t Type) Last() Dim {
	if len(t.Shape) == 0 {
		return Static(1)
	}
	return t.Shape[len(t.Shape)-1]
}

// Bytes is the size in memory for the run-time values dims.
func (t Type) Bytes(dims []int) int { return t.DType.Bytes(t.Shape.Elements(dims)) }

// String writes the type as f32[n,64]; bounded axes are written v1, v2, ...
func (t Type) String() string { return strings.ToLower(t.DType.String()) + t.Shape.String() }

// String writes the shape as [n,64].
func (s Shape) String() string {
	axes := make([]string, len(s))
	for i, d := range s {
		axes[i] = d.String()
	}
	return "[" + strings.Join(axes, ",") + "]"
}

// String writes the axis as a number, or as v1 or 4*v1 where it is bounded.
func (d Dim) String() string {
	switch {
	case d.Var == 0:
		return fmt.Sprint(d.N)
	case d.N == 1:
		return fmt.Sprintf("v%d", d.Var)
	}
	return fmt.Sprintf("%d*v%d", d.N, d.Var)
}

// f32 is a float32 type of the given shape.
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

// shape gives the axes back; those that were too many are lost, see check.
func (a axes) shape() Shape { return slices.Clone(a.d[:min(a.n, MaxRank)]) }

func (a axes) check() error {
	if a.n > MaxRank {
		return fmt.Errorf("a shape of %d axes, at most %d", a.n, MaxRank)
	}
	return nil
}

// isNumber reports whether elements of type d are computed with one by one.
// All other types are stored, moved and cast only.
func isNumber(d tensor.DType) bool { return d == tensor.F32 || d == tensor.I32 || d == tensor.U32 }

// isFactor reports whether matrices of type d are multiplied.
func isFactor(d tensor.DType) bool { return d == tensor.F32 || d == tensor.BF16 || d == tensor.F16 }

// isWeight reports whether matrices of type d are multiplied with, as the
// second factor: quantised weights too.
func isWeight(d tensor.DType) bool { return isFactor(d) || d.Quantized() }

// checkQuantized keeps quantised values, whose elements cannot be told apart
// without their blocks, to the operations that know of blocks.
func checkQuantized(op Op, in []Type) error {
	switch op {
	case Gemm, RowsGemm, RowsGemmGrad, LinearCrossEntropy, LinearCrossEntropyGrad, Cast:
		return nil
	}
	for _, t := range in {
		if t.DType.Quantized() {
			return fmt.Errorf("%v is quantised: it can be multiplied with, and cast", t)
		}
	}
	return nil
}

// checkType tells whether a value of the graph can have type t.
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
