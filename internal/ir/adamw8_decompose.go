package ir

import (
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// blocks views the elements of a parameter as rows of 256; the last row is padded with zeros.
type blocks struct {
	*Graph
	shape Shape
	n     int
	rows  int
}

func decomposeAdamW8(g *Graph, attr any, in []Value) []Value {
	a, p := attr.(AdamWAttr), in[0]
	b := blocks{g, g.Type(p).Shape, g.Type(p).Shape.Elements(nil), g.Type(in[3]).Shape[0].N}
	rate := func(i int) Value { return g.Reshape(g.Slice(in[7], 0, i, i+1), Shape{}) }
	table := func(i int) Value { return g.Reshape(g.Slice(in[6], 0, i, i+1), ShapeOf(256, 1)) }
	grad := g.Mul(b.split(in[5]), in[8])
	m := b.decode(in[1], in[3], table(0))
	v := b.decode(in[2], in[4], table(1))
	m = g.Add(g.Scale(m, a.Beta1), g.Scale(grad, 1-a.Beta1))
	v = g.Add(g.Scale(v, a.Beta2), g.Mul(g.Scale(grad, 1-a.Beta2), grad))
	denominator := g.AddScalar(g.Div(g.Unary(Sqrt, v), rate(2)), a.Eps)
	next := b.join(g.Sub(g.Mul(b.split(p), rate(0)), g.Div(g.Mul(m, rate(1)), denominator)))
	mCodes, mScale := b.encode(m, table(0))
	vCodes, vScale := b.encode(v, table(1))
	ok := g.Compare(Greater, g.Unary(IsFinite, in[8]), g.Const(0, scalar))
	keep := func(now, old Value) Value {
		if t := g.Type(old); t.DType == tensor.U8 { // codes have no select of their own
			return g.Cast(g.Where(ok, now, g.Cast(old, tensor.F32)), tensor.U8)
		}
		return g.Where(ok, now, old)
	}
	return []Value{keep(next, p), keep(mCodes, in[1]), keep(vCodes, in[2]), keep(mScale, in[3]), keep(vScale, in[4])}
}

// split reshapes x [shape] to rows of 256.
func (b blocks) split(x Value) Value {
	x = b.Reshape(x, ShapeOf(b.n))
	if rest := b.rows*quant.DynamicBlock - b.n; rest > 0 {
		x = b.Concat(0, x, b.Const(0, f32(ShapeOf(rest))))
	}
	return b.Reshape(x, ShapeOf(b.rows, quant.DynamicBlock))
}

// join is the inverse of split.
func (b blocks) join(x Value) Value {
	x = b.Reshape(x, ShapeOf(b.rows*quant.DynamicBlock))
	return b.Reshape(b.Slice(x, 0, 0, b.n), b.shape)
}

// decode dequantizes codes [shape] with scales [rows] and returns rows.
func (b blocks) decode(codes, scales, table Value) Value {
	x := b.lookUp(table, b.Reshape(b.Cast(codes, tensor.F32), ShapeOf(b.n)))
	return b.Mul(b.split(x), b.Reshape(scales, ShapeOf(b.rows, 1)))
}

// lookUp returns table[numbers] as [n], for a table [256,1] and numbers [n].
func (b blocks) lookUp(table, numbers Value) Value {
	n := b.Type(numbers).Shape
	return b.Reshape(b.GatherRows(table, b.Cast(numbers, tensor.I32)), n)
}

// encode quantizes rows and returns codes as numbers [shape], and scales [rows].
func (b blocks) encode(x, table Value) (codes, scales Value) {
	flat := ShapeOf(b.rows * quant.DynamicBlock)
	scales = b.Reduce(ReduceMax, b.Unary(Abs, x), 1)
	filled := b.Compare(Greater, scales, b.Const(0, scalar))
	inverse := b.Where(filled, b.Unary(Reciprocal, b.Where(filled, scales, b.Const(1, scalar))), b.Const(0, scalar))
	x = b.Mul(x, b.Reshape(inverse, ShapeOf(b.rows, 1)))
	x = b.Binary(Min, b.Binary(Max, x, b.Const(-1, scalar)), b.Const(1, scalar))
	point := b.AddScalar(b.Scale(b.Scale(b.AddScalar(x, 1), 0.5), 1<<16-1), 0.5)
	point = b.floor(b.Reshape(point, flat))
	value := b.AddScalar(b.Div(b.Scale(point, 2), b.Const(1<<16-1, scalar)), -1)

	low, high := b.Slice(table, 0, 0, 255), b.Slice(table, 0, 1, 256)
	middles := b.Scale(b.Add(low, high), 0.5)
	code := b.Const(0, f32(flat))
	for step := 128; step > 0; step /= 2 { // binary search: code counts the midpoints below the value
		further := b.AddScalar(code, float64(step))
		below := b.Compare(Less, b.lookUp(middles, b.AddScalar(further, -1)), value)
		code = b.Where(below, further, code)
	}
	some := b.Broadcast(b.Reshape(b.Where(filled, b.Const(1, scalar), b.Const(0, scalar)), ShapeOf(b.rows, 1)), ShapeOf(b.rows, quant.DynamicBlock))
	return b.join(b.Mul(b.Reshape(code, ShapeOf(b.rows, quant.DynamicBlock)), some)), scales
}

// floor rounds non-negative numbers down.
func (b blocks) floor(x Value) Value {
	nearest := b.Cast(b.Cast(x, tensor.I32), tensor.F32)
	return b.Where(b.Compare(Greater, nearest, x), b.AddScalar(nearest, -1), nearest)
}
