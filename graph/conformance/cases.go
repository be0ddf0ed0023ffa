package conformance

import (
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// cases returns all cases.
func cases() []testCase {
	return slices.Concat(sourceCases, castCases(), unaryCases(), binaryCases(), chooseCases(), shapeCases, rowCases,
		gemmCases(), rowsCases(), normCases, imageCases, ropeCases, gluCases(), dropoutCases, attentionCases(), lossCases, optimizerCases)
}

// one wraps a single output.
func one(v ir.Value) []ir.Value { return []ir.Value{v} }

var sourceCases = []testCase{
	{op: ir.Param, in: []input{arg("f32[3,5]", wide)}, build: func(_ *ir.Graph, in []ir.Value) []ir.Value { return one(in[0]) }},
	{op: ir.Param, name: "bf16", in: []input{arg("bf16[7]", wide)}, build: func(_ *ir.Graph, in []ir.Value) []ir.Value { return one(in[0]) }},
	{op: ir.Out, in: []input{arg("f32[4,9]", normal), arg("f32[4,9]", normal), frozen("f32[4,9]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Out(g.Apply(ir.GLUGrad, ir.GLUAttr{Act: ir.SiLU}, in...), 1))
		}},
	constCase("f32", 0.1, ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(3, 7)}),
	constCase("scalar", math.Inf(-1), ir.Type{DType: tensor.F32}),
	constCase("i32", -5, ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(9)}),
	constCase("u32", math.MaxUint32, ir.Type{DType: tensor.U32, Shape: ir.ShapeOf(2, 2)}),
	constCase("bool", 1, ir.Type{DType: tensor.Bool, Shape: ir.ShapeOf(3)}),
	{op: ir.Const, name: "bounded", bounds: "n=5/9", build: func(g *ir.Graph, _ []ir.Value) []ir.Value {
		return one(g.Const(2.5, ir.Type{DType: tensor.F32, Shape: ir.Shape{ir.Static(3), g.Bound("n", 9)}}))
	}},
	{op: ir.Iota, name: "rows", build: func(g *ir.Graph, _ []ir.Value) []ir.Value { return one(g.Iota(0, ir.ShapeOf(5, 3))) }},
	{op: ir.Iota, name: "middle", build: func(g *ir.Graph, _ []ir.Value) []ir.Value { return one(g.Iota(1, ir.ShapeOf(2, 5, 3))) }},
	{op: ir.Iota, name: "bounded", bounds: "n=3/7 m=4/5", build: func(g *ir.Graph, _ []ir.Value) []ir.Value {
		return one(g.Iota(1, ir.Shape{g.Bound("n", 7), g.Bound("m", 5)}))
	}},
	{op: ir.Philox, in: []input{arg("u32[3]", words)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Philox(in[0], 7, ir.ShapeOf(5, 9)))
	}},
	{op: ir.Philox, name: "rows", bounds: "n=5/6", in: []input{arg("u32[n,4]", words)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Philox(in[0], 5, ir.Shape{g.Bound("n", 6), ir.Static(3), ir.Static(23)}))
	}},
	{op: ir.Philox, name: "bounded", bounds: "n=4/6", in: []input{arg("u32[3]", words)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Philox(in[0], 1, ir.Shape{g.Bound("n", 6), ir.Static(5000)}))
	}},
}

func constCase(name string, x float64, t ir.Type) testCase {
	return testCase{op: ir.Const, name: name, build: func(g *ir.Graph, _ []ir.Value) []ir.Value { return one(g.Const(x, t)) }}
}

// castCases returns casts, which are frozen because the reference rounds and a step function has no finite differences.
func castCases() []testCase {
	cast := func(name, from string, f fill, to tensor.DType) testCase {
		return testCase{op: ir.Cast, name: name, in: []input{frozen(from, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Cast(in[0], to))
		}}
	}
	return []testCase{
		cast("f32 to bf16", "f32[13,11]", wide, tensor.BF16),
		cast("f32 to f16", "f32[13,11]", normal, tensor.F16),
		cast("bf16 to f32", "bf16[13,11]", wide, tensor.F32),
		cast("f16 to f32", "f16[5]", normal, tensor.F32),
		cast("i32 to f32", "i32[9]", below(1000), tensor.F32),
		cast("f32 to i32", "f32[9]", scaled(normal, 40), tensor.I32),
		cast("u32 to f32", "u32[64]", words, tensor.F32),
		cast("bool to f32", "bool[17]", bits, tensor.F32),
		{op: ir.Cast, name: "bounded", bounds: "n=3/8", in: []input{frozen("f32[n,7]", wide)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Cast(in[0], tensor.BF16))
		}},
	}
}

func unaryCases() []testCase {
	var all []testCase
	add := func(fn ir.UnaryFn, name, typ string, f fill, limit float64) {
		all = append(all, testCase{op: ir.Unary, name: fn.String() + name, bounds: "n=3/5", limit: limit,
			in:    []input{arg(typ, f)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Unary(fn, in[0])) }})
	}
	for _, fn := range []ir.UnaryFn{ir.Neg, ir.Exp, ir.Tanh, ir.Sigmoid, ir.Erf, ir.Sin, ir.Cos, ir.IsFinite} {
		add(fn, "", "f32[7,33]", normal, 0)
	}
	for _, fn := range []ir.UnaryFn{ir.Log, ir.Sqrt, ir.Rsqrt, ir.Reciprocal} {
		add(fn, "", "f32[7,33]", positive, 0)
	}
	add(ir.Abs, "", "f32[5,7]", apart, 0)
	add(ir.Neg, "/long", "f32[3,8195]", normal, 0)
	add(ir.Exp, "/bounded", "f32[n,19]", normal, 0)
	add(ir.Sqrt, "/scalar", "f32[]", positive, 0)
	// The ends of the range: no gradients, since differences overflow there.
	add(ir.Exp, "/ends", "f32[8]", values(-1e4, -110, -88, -1e-8, 0, 80, 88.5, math.Inf(-1)), 0)
	add(ir.Sigmoid, "/ends", "f32[6]", values(math.Inf(-1), -100, -20, 20, 100, math.Inf(1)), 0)
	add(ir.Tanh, "/ends", "f32[6]", values(math.Inf(-1), -20, -1e-6, 1e-6, 20, math.Inf(1)), 0)
	add(ir.Log, "/ends", "f32[4]", values(0, 1e-30, 1, math.Inf(1)), 0)
	add(ir.Sin, "/far", "f32[5]", values(1000, -5000.5, 65536, 1e5, 3.1415927), 0)
	add(ir.IsFinite, "/ends", "f32[5]", values(math.Inf(1), math.NaN(), math.Inf(-1), 3.4e38, 0), 0)
	for i := range all {
		all[i].in[0].frozen = strings.HasSuffix(all[i].name, "/ends") || strings.HasPrefix(all[i].name, "IsFinite")
	}
	return all
}

func binaryCases() []testCase {
	var all []testCase
	add := func(fn ir.BinaryFn, name, x string, fx fill, y string, fy fill) {
		all = append(all, testCase{op: ir.Binary, name: fn.String() + name, bounds: "n=3/5 m=7/8", in: []input{arg(x, fx), arg(y, fy)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Binary(fn, in[0], in[1])) }})
	}
	for _, fn := range []ir.BinaryFn{ir.Add, ir.Sub, ir.Mul, ir.Div} {
		add(fn, "", "f32[5,17]", normal, "f32[5,17]", positive)
		add(fn, "/row", "f32[5,17]", normal, "f32[17]", positive)
		add(fn, "/column", "f32[5,17]", normal, "f32[5,1]", positive)
		add(fn, "/scalar", "f32[5,17]", normal, "f32[]", positive)
		add(fn, "/row first", "f32[17]", normal, "f32[5,17]", positive)
		add(fn, "/column first", "f32[5,1]", normal, "f32[5,17]", positive)
		add(fn, "/scalar first", "f32[1]", normal, "f32[5,17]", positive)
		add(fn, "/outer", "f32[5,1]", normal, "f32[1,7]", positive)
		add(fn, "/middle", "f32[2,3,5,2]", normal, "f32[3,1,2]", positive)
		add(fn, "/samples", "f32[3,m,17]", normal, "f32[3,1,17]", positive)
		add(fn, "/samples first", "f32[2,1,1,5]", normal, "f32[2,n,3,5]", positive)
		add(fn, "/bounded", "f32[n,2m]", normal, "f32[n,1]", positive)
		add(fn, "/long", "f32[3,8195]", normal, "f32[8195]", positive)
	}
	for _, fn := range []ir.BinaryFn{ir.Max, ir.Min} {
		add(fn, "", "f32[5,7]", apart, "f32[5,7]", scaled(apart, 1.013))
		add(fn, "/row", "f32[7]", scaled(apart, 3.017), "f32[5,7]", apart)
		add(fn, "/i32", "i32[n,4]", below(50), "i32[n,1]", below(50))
	}
	add(ir.Add, "/i32", "i32[5,4]", below(1000), "i32[4]", below(1000))
	add(ir.Sub, "/i32", "i32[6]", below(1000), "i32[]", below(1000))
	return all
}

func chooseCases() []testCase {
	var all []testCase
	compare := func(fn ir.CompareFn, name, x, y string, f fill) {
		all = append(all, testCase{op: ir.Compare, name: fn.String() + name, bounds: "n=3/5", in: []input{arg(x, f), arg(y, f)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Compare(fn, in[0], in[1])) }})
	}
	for _, fn := range []ir.CompareFn{ir.Less, ir.LessEqual, ir.Equal, ir.NotEqual, ir.GreaterEqual, ir.Greater} {
		compare(fn, "", "f32[5,9]", "f32[5,9]", below(4))
		compare(fn, "/i32", "i32[n,1]", "i32[1,6]", below(4))
	}
	compare(ir.GreaterEqual, "/u32", "u32[40]", "u32[]", words)
	where := func(name, c, x, y string, f fill) {
		all = append(all, testCase{op: ir.Where, name: name, bounds: "n=3/5", in: []input{arg(c, bits), arg(x, f), arg(y, f)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Where(in[0], in[1], in[2])) }})
	}
	where("", "bool[5,9]", "f32[5,9]", "f32[5,9]", normal)
	where("rows", "bool[n,1]", "f32[n,9]", "f32[9]", normal)
	where("scalars", "bool[7,2]", "f32[]", "f32[1,1]", normal)
	where("one condition", "bool[]", "f32[5]", "f32[5]", normal)
	where("bool", "bool[4,1]", "bool[4,5]", "bool[5]", bits)
	where("i32", "bool[4,5]", "i32[5]", "i32[4,5]", below(100))
	return all
}
