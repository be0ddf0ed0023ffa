package ir

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

const scatterRowsDoc = "a table [v,...] with rows [n,...] written over it at index [n], i32: rows of a negative index are skipped, of several rows " +
	"with one index the last is written; every index must be below v. It also joins values along axes whose sizes are known only when a program " +
	"runs, such as the text and the image tokens of a transformer with two streams: write each into one table of zeros at the places of its rows, " +
	"and take them apart with GatherRows"

var _ = define(ScatterRows, OpDef{Name: "ScatterRows", Doc: scatterRowsDoc,
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		table, rows, index := in[0], in[1], in[2]
		if table.Rank() == 0 || rows.Rank() != table.Rank() || !isFactor(table.DType) || table.DType != rows.DType ||
			!slices.Equal(table.Shape[1:], rows.Shape[1:]) || !index.Equal(Type{tensor.I32, rows.Shape[:1]}) {
			return nil, fmt.Errorf("expected a table [v,...] of floats, rows [n,...] like its own and i32 index [n]")
		}
		if slices.ContainsFunc(table.Shape[1:], func(d Dim) bool { return d.Var != 0 }) {
			return nil, fmt.Errorf("rows of %v have no fixed size", table)
		}
		return in[:1], nil
	},
	// Each row of the table gathers the last of the rows whose index selects it.
	Decompose: func(g *Graph, _ any, in []Value) []Value {
		t, v, n := g.Type(in[0]), g.Type(in[0]).Shape[0], g.Type(in[1]).Shape[0]
		width := 1
		for _, d := range t.Shape[1:] {
			width *= d.N
		}
		if n == Static(0) || width == 0 {
			return []Value{in[0]}
		}
		each := Shape{v, n}
		hit := g.Compare(Equal, g.Iota(0, each), g.Reshape(in[2], Shape{Static(1), n}))
		from := g.Where(hit, g.Iota(1, each), g.Const(-1, Type{tensor.I32, Shape{}}))
		last := g.Cast(g.Reduce(ReduceMax, g.Cast(from, tensor.F32), 1), tensor.I32)
		rows := g.GatherRows(g.Reshape(in[1], Shape{n, Static(width)}), g.notNegative(last))
		old := g.Cast(g.Reshape(in[0], Shape{v, Static(width)}), tensor.F32)
		some := g.Compare(GreaterEqual, last, g.Const(0, Type{tensor.I32, Shape{}}))
		out := g.Where(g.Reshape(some, Shape{v, Static(1)}), rows, old)
		return []Value{g.Reshape(g.Cast(out, t.DType), t.Shape)}
	},
	Gradient: scatterRowsGradient,
	Reference: func(_ any, in, outs []*Host) {
		copy(outs[0].Data, in[0].Data)
		width := product(in[0].Shape[1:])
		for i, at := range in[2].Data {
			if at >= 0 {
				copy(outs[0].Data[int(at)*width:][:width], in[1].Data[i*width:])
			}
		}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return in[1].Shape.Elements(dims) },
	Reads:   readsRows,
	Writes:  writesRows,
	InPlace: func(any, int) int { return 0 },
})

// scatterRowsGradient computes gradients. An overwritten row, of the table or written earlier, does not affect the
// result and gets none.
func scatterRowsGradient(b *Backward) {
	g, dy, index := b.G, b.Dy(0), b.In(2)
	t, n := b.InType(1), b.InType(1).Shape[0]
	if b.Needs(0) {
		b.Acc(0, g.ScatterRows(dy, g.Const(0, f32(t.Shape)), index))
	}
	if !b.Needs(1) {
		return
	}
	one := Static(1)
	owners := g.Const(-1, f32(Shape{b.InType(0).Shape[0], one}))
	row := g.Cast(g.Iota(0, Shape{n, one}), tensor.F32)
	at := g.notNegative(index)
	mine := g.Compare(Equal, g.GatherRows(g.ScatterRows(owners, row, index), at), row)
	some := g.Compare(GreaterEqual, g.Reshape(index, Shape{n, one}), g.Const(0, Type{tensor.I32, Shape{}}))
	write := g.Where(some, mine, g.Compare(NotEqual, row, row))
	width := 1
	for _, d := range t.Shape[1:] {
		width *= d.N
	}
	dx := g.GatherRows(g.Reshape(dy, Shape{b.InType(0).Shape[0], Static(width)}), at)
	b.Acc(1, g.Reshape(g.Where(write, dx, g.Const(0, f32(Shape{n, Static(width)}))), t.Shape))
}

// notNegative clamps x i32 to at least 0.
func (g *Graph) notNegative(x Value) Value {
	return g.Binary(Max, x, g.Const(0, Type{tensor.I32, Shape{}}))
}

// ScatterRows overwrites rows of table at index; a row with a negative index is skipped.
func (g *Graph) ScatterRows(table, rows, index Value) Value {
	return g.Apply(ScatterRows, nil, table, rows, index)
}
