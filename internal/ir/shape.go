package ir

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// ReduceFn is the function of a reduction.
type ReduceFn uint8

// Functions of [Reduce].
const (
	ReduceSum ReduceFn = iota
	ReduceMax
)

// String returns the name of the function.
func (f ReduceFn) String() string { return [...]string{"Sum", "Max"}[f] }

// ReduceAttr holds the function and the axis that is removed.
type ReduceAttr struct {
	Fn   ReduceFn
	Axis int
}

// ShapeAttr holds the result shape of a Reshape or Broadcast.
type ShapeAttr struct{ axes axes }

// Shape returns the result shape.
func (a ShapeAttr) Shape() Shape { return a.axes.shape() }

// PermAttr holds the order of axes of a Transpose.
type PermAttr struct {
	N int
	P [MaxRank]int
}

// Perm returns the order of the axes.
func (a PermAttr) Perm() []int { return a.P[:a.N] }

// SliceAttr holds the range [Start, End) of one axis. For an axis of N times a bounded dimension, Start and End count
// in units of that dimension.
type SliceAttr struct{ Axis, Start, End int }

// ConcatAttr holds the axis along which inputs are concatenated.
type ConcatAttr struct{ Axis int }

var _ = define(Reduce, OpDef{Name: "Reduce", Doc: "the sum or the maximum along one axis, which is removed",
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(ReduceAttr)
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		if in[0].DType != tensor.F32 {
			return nil, fmt.Errorf("%v of %v, expected F32", a.Fn, in[0].DType)
		}
		if a.Axis < 0 || a.Axis >= in[0].Rank() {
			return nil, fmt.Errorf("axis %d of %v", a.Axis, in[0])
		}
		return []Type{{in[0].DType, slices.Delete(slices.Clone(in[0].Shape), a.Axis, a.Axis+1)}}, nil
	},
	Gradient: func(b *Backward) {
		g, a, t := b.G, b.Attr.(ReduceAttr), b.InType(0)
		keep := slices.Clone(t.Shape)
		keep[a.Axis] = Static(1)
		dy := g.Reshape(b.Dy(0), keep)
		if a.Fn == ReduceSum {
			b.Acc(0, g.Broadcast(dy, t.Shape))
			return
		}
		// Every element that equals the maximum gets the gradient. Ties are rare, and harmless in all uses of the
		// maximum.
		x := b.In(0)
		hit := g.Compare(Equal, x, g.Broadcast(g.Reshape(b.Out(0), keep), t.Shape))
		b.Acc(0, g.Where(hit, g.Broadcast(dy, t.Shape), g.Const(0, t)))
	},
	Reference: func(attr any, in, outs []*Host) {
		a := attr.(ReduceAttr)
		inner, n := product(in[0].Shape[a.Axis+1:]), in[0].Shape[a.Axis]
		if a.Fn == ReduceMax {
			fill(outs[0].Data, math.Inf(-1))
		}
		for i, x := range in[0].Data {
			o := i/(inner*n)*inner + i%inner
			if a.Fn == ReduceMax {
				outs[0].Data[o] = math.Max(outs[0].Data[o], x)
			} else {
				outs[0].Data[o] += x
			}
		}
	},
	Flops: func(_ any, in, _ []Type, dims []int) int { return in[0].Shape.Elements(dims) },
})

var _ = define(ArgMax, OpDef{Name: "ArgMax", Doc: "the first index of the largest element along the last axis, as i32", NoGradient: true,
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 1 || in[0].Rank() == 0 || in[0].DType != tensor.F32 {
			return nil, fmt.Errorf("expected one F32 with an axis")
		}
		return []Type{{tensor.I32, slices.Clone(in[0].Shape[:in[0].Rank()-1])}}, nil
	},
	Reference: func(_ any, in, outs []*Host) {
		n := in[0].Shape[len(in[0].Shape)-1]
		for o := range outs[0].Data {
			best := 0
			for i, x := range in[0].Data[o*n : o*n+n] {
				if x > in[0].Data[o*n+best] {
					best = i
				}
			}
			outs[0].Data[o] = float64(best)
		}
	},
})

var _ = define(Reshape, OpDef{Name: "Reshape", Doc: "the same elements in the same order under another shape",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		to := attr.(ShapeAttr).Shape()
		if err := attr.(ShapeAttr).axes.check(); err != nil {
			return nil, err
		}
		if !sameSize(in[0].Shape, to) {
			return nil, fmt.Errorf("cannot become %v: the number of elements differs", Type{in[0].DType, to})
		}
		return []Type{{in[0].DType, to}}, nil
	},
	Gradient: func(b *Backward) { b.Acc(0, b.G.Reshape(b.Dy(0), b.InType(0).Shape)) },
	Reference: func(_ any, in, outs []*Host) {
		copy(outs[0].Data, in[0].Data)
	},
})

var _ = define(Detach, OpDef{Name: "Detach", Doc: "the value itself, through which no gradient flows", NoGradient: true,
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		return in[:1], nil
	},
	Reference: func(_ any, in, outs []*Host) { copy(outs[0].Data, in[0].Data) },
})

var _ = define(Transpose, OpDef{Name: "Transpose", Doc: "the axes in another order",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		p := attr.(PermAttr).Perm()
		if len(p) != in[0].Rank() {
			return nil, fmt.Errorf("%v is not an order of the axes of %v", p, in[0])
		}
		seen := [MaxRank]bool{}
		s := make(Shape, len(p))
		for i, a := range p {
			if a < 0 || a >= len(p) || seen[a] {
				return nil, fmt.Errorf("%v is not an order of the axes of %v", p, in[0])
			}
			seen[a], s[i] = true, in[0].Shape[a]
		}
		return []Type{{in[0].DType, s}}, nil
	},
	Gradient: func(b *Backward) {
		p := b.Attr.(PermAttr).Perm()
		inverse := make([]int, len(p))
		for i, a := range p {
			inverse[a] = i
		}
		b.Acc(0, b.G.Transpose(b.Dy(0), inverse...))
	},
	Reference: func(attr any, in, outs []*Host) {
		p, src := attr.(PermAttr).Perm(), strides(in[0].Shape)
		each(outs[0].Shape, func(i int, at []int) {
			j := 0
			for k, a := range p {
				j += at[k] * src[a]
			}
			outs[0].Data[i] = in[0].Data[j]
		})
	},
})

var _ = define(Broadcast, OpDef{Name: "Broadcast", Doc: "axes of one element and missing outer axes repeated to a shape",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		to := attr.(ShapeAttr).Shape()
		if err := attr.(ShapeAttr).axes.check(); err != nil {
			return nil, err
		}
		if s, err := broadcastShapes(in[0].Shape, to); err != nil || !s.Equal(to) {
			return nil, fmt.Errorf("cannot be repeated to %v", Type{in[0].DType, to})
		}
		return []Type{{in[0].DType, to}}, nil
	},
	Gradient:  func(b *Backward) { b.Acc(0, b.G.SumTo(b.Dy(0), b.InType(0).Shape)) },
	Reference: func(_ any, in, outs []*Host) { copy(outs[0].Data, broadcastTo(in[0], outs[0].Shape)) },
})

var _ = define(Slice, OpDef{Name: "Slice", Doc: "a range of one axis; of one that is N times a bounded dimension, a range of these N parts",
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(SliceAttr)
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		if a.Axis < 0 || a.Axis >= in[0].Rank() {
			return nil, fmt.Errorf("axis %d of %v", a.Axis, in[0])
		}
		if a.Start < 0 || a.End < a.Start || a.End > in[0].Shape[a.Axis].N {
			return nil, fmt.Errorf("range [%d,%d) of axis %d of %v", a.Start, a.End, a.Axis, in[0])
		}
		s := slices.Clone(in[0].Shape)
		s[a.Axis] = parts(a.End-a.Start, in[0].Shape[a.Axis])
		return []Type{{in[0].DType, s}}, nil
	},
	Gradient: func(b *Backward) {
		g, a, t := b.G, b.Attr.(SliceAttr), b.InType(0)
		var all []Value
		pad := func(n int) {
			if n > 0 {
				s := slices.Clone(t.Shape)
				s[a.Axis] = parts(n, t.Shape[a.Axis])
				all = append(all, g.Const(0, Type{g.Type(b.Dy(0)).DType, s}))
			}
		}
		pad(a.Start)
		all = append(all, b.Dy(0))
		pad(t.Shape[a.Axis].N - a.End)
		b.Acc(0, g.Concat(a.Axis, all...))
	},
	Reference: func(attr any, in, outs []*Host) {
		a := attr.(SliceAttr)
		inner, n, m := product(in[0].Shape[a.Axis+1:]), in[0].Shape[a.Axis], outs[0].Shape[a.Axis]
		w := m * inner
		for o := 0; w > 0 && o*w < len(outs[0].Data); o++ {
			copy(outs[0].Data[o*w:o*w+w], in[0].Data[(o*n+a.First(m))*inner:])
		}
	},
})

// First returns the index of the first element of the range. elements is the number of elements in the range.
func (a SliceAttr) First(elements int) int {
	if a.End == a.Start {
		return 0
	}
	return a.Start * (elements / (a.End - a.Start))
}

// parts returns an axis of n times the bounded dimension of d.
func parts(n int, d Dim) Dim {
	if n == 0 {
		return Static(0)
	}
	return Dim{n, d.Var}
}

const concatDoc = "inputs joined along one axis, whose sizes must be fixed or multiples of one bounded dimension; " +
	"where they are bounded by several, there is no dimension for their sum, and ScatterRows joins them"

var _ = define(Concat, OpDef{Name: "Concat", Doc: concatDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(ConcatAttr)
		if len(in) == 0 || a.Axis < 0 || a.Axis >= in[0].Rank() {
			return nil, fmt.Errorf("axis %d of %d inputs", a.Axis, len(in))
		}
		s := slices.Clone(in[0].Shape)
		s[a.Axis].N = 0
		for _, t := range in {
			u := slices.Clone(t.Shape)
			if t.DType != in[0].DType || len(u) != len(s) {
				return nil, fmt.Errorf("%v does not fit %v", t, in[0])
			}
			if u[a.Axis].Var != s[a.Axis].Var {
				return nil, fmt.Errorf("%v and %v have no sum along axis %d: write the rows of both into one table by ScatterRows", in[0], t, a.Axis)
			}
			n := s[a.Axis].N + u[a.Axis].N
			u[a.Axis] = s[a.Axis]
			if !u.Equal(s) {
				return nil, fmt.Errorf("%v does not fit %v", t, in[0])
			}
			s[a.Axis].N = n
		}
		return []Type{{in[0].DType, s}}, nil
	},
	Gradient: func(b *Backward) {
		axis, at := b.Attr.(ConcatAttr).Axis, 0
		for i := range b.in {
			n := b.InType(i).Shape[axis].N
			if b.Needs(i) {
				b.Acc(i, b.G.Slice(b.Dy(0), axis, at, at+n))
			}
			at += n
		}
	},
	Reference: func(attr any, in, outs []*Host) {
		axis := attr.(ConcatAttr).Axis
		width, at := product(outs[0].Shape[axis:]), 0
		for _, h := range in {
			w := product(h.Shape[axis:])
			for o := 0; w > 0 && o*w < len(h.Data); o++ {
				copy(outs[0].Data[o*width+at:], h.Data[o*w:o*w+w])
			}
			at += w
		}
	},
})

// sameSize reports whether both shapes have the same number of elements for all values of the bounded dimensions.
func sameSize(a, b Shape) bool {
	n, v := factors(a)
	m, w := factors(b)
	return n == m && (n == 0 || v == w)
}

// factors returns the number of elements as a number times bounded dimensions.
func factors(s Shape) (n int, vars axes) {
	n = 1
	for _, d := range s {
		if n *= d.N; d.Var != 0 {
			vars.d[vars.n] = Dim{1, d.Var}
			vars.n++
		}
	}
	slices.SortFunc(vars.d[:vars.n], func(x, y Dim) int { return int(x.Var) - int(y.Var) })
	return n, vars
}

// Reduce reduces x along axis, which is removed.
func (g *Graph) Reduce(fn ReduceFn, x Value, axis int) Value {
	return g.Apply(Reduce, ReduceAttr{fn, axis}, x)
}

// ArgMax computes the index of the largest element along the last axis.
func (g *Graph) ArgMax(x Value) Value { return g.Apply(ArgMax, nil, x) }

// Reshape returns x with another shape of the same number of elements.
func (g *Graph) Reshape(x Value, s Shape) Value {
	if x != 0 && g.Type(x).Shape.Equal(s) {
		return x
	}
	return g.Apply(Reshape, ShapeAttr{axesOf(s)}, x)
}

// Detach returns x as a constant for [Graph.Gradients].
func (g *Graph) Detach(x Value) Value { return g.Apply(Detach, nil, x) }

// Transpose permutes the axes of x in the order perm.
func (g *Graph) Transpose(x Value, perm ...int) Value {
	a := PermAttr{N: len(perm)}
	if copy(a.P[:], perm) < len(perm) {
		return g.Fail(fmt.Errorf("Transpose: more than %d axes", MaxRank))
	}
	return g.Apply(Transpose, a, x)
}

// Broadcast broadcasts x to the shape s.
func (g *Graph) Broadcast(x Value, s Shape) Value {
	if x != 0 && g.Type(x).Shape.Equal(s) {
		return x
	}
	return g.Apply(Broadcast, ShapeAttr{axesOf(s)}, x)
}

// Slice selects the range [start, end) of one axis of x; see [SliceAttr].
func (g *Graph) Slice(x Value, axis, start, end int) Value {
	return g.Apply(Slice, SliceAttr{axis, start, end}, x)
}

// Concat concatenates xs along axis.
func (g *Graph) Concat(axis int, xs ...Value) Value {
	if len(xs) == 1 {
		return xs[0]
	}
	return g.Apply(Concat, ConcatAttr{axis}, xs...)
}

// SumTo reverses a broadcast: it sums x over the axes that were broadcast, and returns a value of shape s.
func (g *Graph) SumTo(x Value, s Shape) Value {
	if x == 0 {
		return 0
	}
	for g.Type(x).Rank() > len(s) {
		x = g.Reduce(ReduceSum, x, 0)
	}
	for i, d := range s {
		if d == Static(1) && g.Type(x).Shape[i] != d {
			x = g.Reduce(ReduceSum, x, i)
			keep := slices.Insert(slices.Clone(g.Type(x).Shape), i, Static(1))
			x = g.Reshape(x, keep)
		}
	}
	return x
}

// ReshapeTo returns the attribute of a Reshape or Broadcast to s.
func ReshapeTo(s Shape) ShapeAttr { return ShapeAttr{axesOf(s)} }
