package conformance

import (
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

var shapeCases = []testCase{
	reduceCase("Sum/last", ir.ReduceSum, 1, "f32[5,33]", normal),
	reduceCase("Sum/first", ir.ReduceSum, 0, "f32[33,5]", normal),
	reduceCase("Sum/middle", ir.ReduceSum, 1, "f32[3,7,5]", normal),
	reduceCase("Sum/bounded", ir.ReduceSum, 0, "f32[n,6]", normal),
	reduceCase("Sum/long", ir.ReduceSum, 0, "f32[20011]", normal),
	reduceCase("Max/last", ir.ReduceMax, 1, "f32[5,9]", apart),
	reduceCase("Max/first", ir.ReduceMax, 0, "f32[7,3]", apart),
	reduceCase("Max/bounded", ir.ReduceMax, 1, "f32[4,n]", apart),
	argMaxCase("", "f32[5,33]", normal),
	argMaxCase("bounded", "f32[n,n]", normal),
	argMaxCase("ties", "f32[7,12]", below(3)),
	argMaxCase("vector", "f32[9]", normal),

	{op: ir.Reshape, in: []input{arg("f32[4,6]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Reshape(in[0], ir.ShapeOf(2, 3, 4)))
	}},
	{op: ir.Reshape, name: "bounded", bounds: "n=3/5", in: []input{arg("f32[2n,6]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Reshape(in[0], ir.Shape{g.Bound("n", 5), ir.Static(12)}))
	}},
	{op: ir.Reshape, name: "two bounds", bounds: "n=3/5 m=2/7", in: []input{arg("f32[n,4m,3]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		n, m := g.Bound("n", 5), g.Bound("m", 7)
		return one(g.Unary(ir.Neg, g.Reshape(in[0], ir.Shape{n, m, ir.Static(12)})))
	}},
	{op: ir.Detach, in: []input{arg("f32[4,6]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Detach(in[0])) }},
	{op: ir.Detach, name: "bf16", bounds: "n=3/5", in: []input{arg("bf16[n,6]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Detach(in[0])) }},
	transposeCase("matrix", "f32[5,33]", 1, 0),
	transposeCase("last two", "f32[3,5,7]", 0, 2, 1),
	transposeCase("first two", "f32[3,5,7]", 1, 0, 2),
	transposeCase("four axes", "f32[2,3,4,5]", 3, 1, 0, 2),
	transposeCase("bounded", "f32[n,4,3]", 1, 0, 2),
	transposeCase("bf16", "bf16[5,7]", 1, 0),
	transposeCase("bool", "bool[5,7]", 1, 0),
	transposeCase("large", "f32[131,67]", 1, 0),

	broadcastCase("row", "f32[7]", 5, 7),
	broadcastCase("column", "f32[5,1]", 5, 7),
	broadcastCase("scalar", "f32[]", 3, 4),
	broadcastCase("middle", "f32[3,1,2]", 4, 3, 5, 2),
	broadcastCase("bool", "bool[1,4]", 3, 4),
	{op: ir.Broadcast, name: "bounded", bounds: "n=3/5", in: []input{arg("f32[1,6]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Broadcast(in[0], ir.Shape{g.Bound("n", 5), ir.Static(6)}))
	}},

	sliceCase("rows", "f32[7,5]", 0, 2, 5),
	sliceCase("columns", "f32[7,5]", 1, 1, 4),
	sliceCase("middle", "f32[3,8,5]", 1, 0, 3),
	sliceCase("end", "f32[3,8]", 1, 7, 8),
	sliceCase("bounded", "f32[n,9]", 1, 3, 9),
	sliceCase("bounded axis", "f32[3n,5]", 0, 1, 3),
	sliceCase("bounded axis end", "f32[2,4n,5]", 1, 3, 4),
	sliceCase("i32", "i32[9]", 0, 3, 6),
	sliceCase("bf16", "bf16[4,6]", 1, 2, 5),

	concatCase("rows", 0, "f32[3,5]", "f32[1,5]", "f32[4,5]"),
	concatCase("columns", 1, "f32[3,5]", "f32[3,2]"),
	concatCase("middle", 1, "f32[2,3,5]", "f32[2,1,5]"),
	concatCase("bounded", 1, "f32[n,5]", "f32[n,3]", "f32[n,1]"),
	concatCase("bounded axis", 0, "f32[n,5]", "f32[2n,5]", "f32[n,5]"),
	concatCase("bounded middle", 1, "f32[2,3n,5]", "f32[2,n,5]"),
	{op: ir.Concat, name: "the same twice", in: []input{arg("f32[3,5]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Concat(1, in[0], in[0]))
	}},
	concatCase("many", 0, "f32[3,7]", "f32[901,7]", "f32[1,7]", "f32[4,7]", "f32[2,7]", "f32[4,7]"),
	concatCase("many bf16", 0, "bf16[3,7]", "bf16[90,7]", "bf16[1,7]", "bf16[4,7]", "bf16[2,7]", "bf16[4,7]"),
	{op: ir.Concat, name: "more than a table", in: []input{arg("f32[3]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Concat(0, slices.Repeat(in, 1100)...))
	}},
}

func reduceCase(name string, fn ir.ReduceFn, axis int, typ string, f fill) testCase {
	return testCase{op: ir.Reduce, name: name, bounds: "n=3/5", in: []input{arg(typ, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Reduce(fn, in[0], axis))
	}}
}

func argMaxCase(name, typ string, f fill) testCase {
	return testCase{op: ir.ArgMax, name: name, bounds: "n=3/5", in: []input{arg(typ, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.ArgMax(in[0]))
	}}
}

func transposeCase(name, typ string, perm ...int) testCase {
	f := fill(normal)
	if typ[:4] == "bool" {
		f = bits
	}
	return testCase{op: ir.Transpose, name: name, bounds: "n=3/5", in: []input{arg(typ, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Transpose(in[0], perm...))
	}}
}

func broadcastCase(name, typ string, shape ...int) testCase {
	f := fill(normal)
	if typ[:4] == "bool" {
		f = bits
	}
	return testCase{op: ir.Broadcast, name: name, in: []input{arg(typ, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Broadcast(in[0], ir.ShapeOf(shape...)))
	}}
}

func sliceCase(name, typ string, axis, start, end int) testCase {
	f := fill(normal)
	if typ[:3] == "i32" {
		f = below(100)
	}
	return testCase{op: ir.Slice, name: name, bounds: "n=3/5", in: []input{arg(typ, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Slice(in[0], axis, start, end))
	}}
}

func concatCase(name string, axis int, types ...string) testCase {
	c := testCase{op: ir.Concat, name: name, bounds: "n=3/5", build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Concat(axis, in...))
	}}
	for _, typ := range types {
		c.in = append(c.in, arg(typ, normal))
	}
	return c
}

var rowCases = []testCase{
	gatherCase("", "f32[11,7]", "i32[5]", 11),
	gatherCase("bf16", "bf16[11,33]", "i32[5]", 11),
	gatherCase("f16", "f16[4,3]", "i32[9]", 4),
	gatherCase("f64", "f64[4,3]", "i32[9]", 4),
	gatherCase("f8 e4m3", "f8_e4m3[4,3]", "i32[9]", 4),
	gatherCase("f8 e5m2", "f8_e5m2[4,3]", "i32[9]", 4),
	gatherCase("bounded", "f32[11,7]", "i32[n]", 11),
	gatherCase("wide", "bf16[3,9001]", "i32[4]", 3),
	{op: ir.ScatterAddRows, in: []input{arg("f32[9,5]", normal), arg("i32[9]", below(4))}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.ScatterAddRows(in[0], in[1], ir.Static(6)))
	}},
	{op: ir.ScatterAddRows, name: "bounded", bounds: "n=3/5", in: []input{arg("f32[n,131]", normal), arg("i32[n]", below(3))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.ScatterAddRows(in[0], in[1], ir.Static(3))) }},
	{op: ir.ScatterAddRows, name: "bounded table", bounds: "n=3/5 m=4/6", in: []input{arg("f32[n,7]", normal), arg("i32[n]", below(4))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.ScatterAddRows(in[0], in[1], g.Bound("m", 6)))
		}},
	gatherCase("bounded table", "f32[2n,7]", "i32[5]", 6),
	gatherCase("ids of two axes", "f32[11,7]", "i32[n,3]", 11),
	{op: ir.GatherRows, name: "two bounded axes", bounds: "n=3/5 m=4/6", in: []input{frozen("f32[9,4]", normal), arg("i32[n,m]", below(9))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.GatherRows(in[0], in[1])) }},
	scatterRowsCase("", "f32[9,5]", "f32[3,5]", values(4, 0, 8)),
	scatterRowsCase("twice", "f32[5,3]", "f32[4,3]", values(1, 3, 1, 0)),
	scatterRowsCase("skipped", "f32[5,3]", "f32[4,3]", values(-1, 3, -7, 0)),
	scatterRowsCase("none", "f32[5,3]", "f32[2,3]", values(-1, -1)),
	scatterRowsCase("bounded", "f32[2n,2,5]", "f32[n,2,5]", values(5, -1, 2)),
	scatterRowsCase("wide", "f32[4,700]", "f32[2,700]", values(3, 1)),
	scatterRowsCase("bf16", "bf16[9,5]", "bf16[3,5]", values(8, 2, 3)),
	scatterRowsCase("vectors", "f32[6,8]", "f32[5,8]", values(2, 5, 2, -1, 2)),
	{op: ir.ScatterRows, name: "keys and values", in: []input{arg("f32[5,6]", normal), arg("f32[3,6]", normal), arg("f32[5,6]", normal), arg("f32[3,6]", normal), arg("i32[3]", values(4, -1, 0))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return []ir.Value{g.ScatterRows(in[0], in[1], in[4]), g.ScatterRows(in[2], in[3], in[4])}
		}},
	{op: ir.ScatterRows, name: "table read later", in: []input{arg("f32[5,6]", normal), arg("f32[3,6]", normal), arg("i32[3]", values(4, 1, 0))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			table := g.Scale(in[0], 2)
			written := g.ScatterRows(table, in[1], in[2])
			return []ir.Value{g.Mul(written, written), g.Mul(table, table)}
		}},
	{op: ir.ScatterRows, name: "two streams", bounds: "n=3/5 m=4/6",
		in: []input{arg("f32[n,3]", normal), arg("i32[n]", values(0, 5, 6)), arg("f32[m,3]", normal), arg("i32[m]", values(1, 2, 3, 4))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			all := g.Const(0, ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(8, 3)})
			return one(g.ScatterRows(g.ScatterRows(all, in[0], in[1]), in[2], in[3]))
		}},
	updateCase("", "f32[9,5]", "f32[3,5]", 4),
	updateCase("start", "f32[9,5]", "f32[1,5]", 0),
	updateCase("end", "f32[9,5]", "f32[2,5]", 7),
	updateCase("all", "f32[4]", "f32[4]", 0),
	updateCase("bounded rows", "f32[9,2,5]", "f32[n,2,5]", 6),
	updateCase("bf16", "bf16[9,5]", "bf16[3,5]", 1),
}

func gatherCase(name, table, ids string, rows int) testCase {
	return testCase{op: ir.GatherRows, name: name, bounds: "n=3/8", in: []input{arg(table, normal), arg(ids, below(rows))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.GatherRows(in[0], in[1])) }}
}

func scatterRowsCase(name, table, rows string, index fill) testCase {
	c := testCase{op: ir.ScatterRows, name: name, bounds: "n=3/8", in: []input{arg(table, normal), arg(rows, normal), {typ: "i32[" + rows[strings.Index(rows, "[")+1:strings.Index(rows, ",")] + "]", fill: index}},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.ScatterRows(in[0], in[1], in[2])) }}
	if table[:4] == "bf16" { // the reference does not round to bf16, so finite differences do not apply
		c.in[0].frozen, c.in[1].frozen = true, true
	}
	return c
}

func updateCase(name, table, rows string, offset float64) testCase {
	return testCase{op: ir.UpdateRows, name: name, bounds: "n=3/8", in: []input{arg(table, normal), arg(rows, normal), arg("i32[1]", values(offset))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.UpdateRows(in[0], in[1], in[2])) }}
}

// wants reports whether inputs of type t can be differentiated.
func wants(t ir.Type) bool {
	return t.DType == tensor.F32 || t.DType == tensor.BF16 || t.DType == tensor.F16
}
