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

// mul returns the product of two axes; at most one of them may be bounded.
func (d Dim) mul(e Dim) (Dim, bool) {
	if d.Var != 0 && e.Var != 0 {
		return Dim{}, false
	}
	return Dim{N: d.N * e.N, Var: d.Var | e.Var}, true
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
func (t Type) Bytes(dims []int) int { return t.Shape.Elements(dims) * t.DType.Size() }

// String writes the type as f32[n,64]; bounded axes are written v1, v2, ...
func (t Type) String() string {
	var b strings.Builder
	b.WriteString(strings.ToLower(t.DType.String()))
	b.WriteByte('[')
	for i, d := range t.Shape {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(d.String())
	}
	b.WriteByte(']')
	return b.String()
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

func (a axes) shape() Shape { return slices.Clone(a.d[:a.n]) }
