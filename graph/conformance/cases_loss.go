package conformance

import (
	"math"
	"math/rand/v2"

	"github.com/lorafuse/lorafuse/internal/ir"
)

func crossEntropyCases(name, n string, vocab string, v int) []testCase {
	x, y := "f32["+n+","+vocab+"]", "i32["+n+"]"
	return []testCase{
		{op: ir.CrossEntropy, name: name, bounds: "n=3/5", in: []input{arg(x, normal), arg(y, labels(v))},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.CrossEntropy(in[0], in[1])) }},
		{op: ir.CrossEntropy, name: name + "/by row", bounds: "n=3/5", in: []input{arg(x, normal), arg(y, labels(v))},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.CrossEntropyByRow(in[0], in[1])) }},
		{op: ir.CrossEntropyGrad, name: name, bounds: "n=3/5", in: []input{arg(x, normal), arg(y, labels(v)), arg("f32[]", positive)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.Apply(ir.CrossEntropyGrad, nil, in...))
			}},
	}
}

func linearCrossEntropyCases(name, n, w string, y fill) []testCase {
	in := []input{arg("f32["+n+",12]", normal), arg(w, normal), arg("i32["+n+"]", y)}
	return []testCase{
		{op: ir.LinearCrossEntropy, name: name, bounds: "n=3/5", limit: gemmLimit, in: in,
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.LinearCrossEntropy(in[0], in[1], in[2])) }},
		{op: ir.LinearCrossEntropy, name: name + "/frozen weight", bounds: "n=3/5", limit: gemmLimit,
			in:    []input{in[0], frozen(w, normal), in[2]},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.LinearCrossEntropy(in[0], in[1], in[2])) }},
		{op: ir.LinearCrossEntropyGrad, name: name, bounds: "n=3/5", limit: gemmLimit, in: append(in[:3:3], arg("f32[]", positive)),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				d := g.Apply(ir.LinearCrossEntropyGrad, nil, in...)
				return []ir.Value{d, g.Out(d, 1)}
			}},
		{op: ir.LinearCrossEntropy, name: name + "/by row", bounds: "n=3/5", limit: gemmLimit, in: in,
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.LinearCrossEntropyByRow(in[0], in[1], in[2]))
			}},
		{op: ir.LinearCrossEntropyGrad, name: name + "/by row", bounds: "n=3/5", limit: gemmLimit, in: append(in[:3:3], arg("f32["+n+"]", positive)),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				d := g.Apply(ir.LinearCrossEntropyGrad, ir.CrossEntropyAttr{ByRow: true}, in...)
				return []ir.Value{d, g.Out(d, 1)}
			}},
	}
}

var lossCases = append(lossTable(), []testCase{
	{op: ir.CrossEntropy, name: "after another", in: []input{arg("f32[4,9]", normal), arg("i32[4]", values(3, 0, -100, 8)), arg("i32[4]", values(-1, 0, 8, -1))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return []ir.Value{g.CrossEntropy(in[0], in[1]), g.CrossEntropy(in[0], in[2])}
		}},
	{op: ir.CrossEntropy, name: "far apart", in: []input{arg("f32[4,9]", scaled(normal, 60)), arg("i32[4]", below(9))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.CrossEntropy(in[0], in[1])) }},
	{op: ir.LinearCrossEntropy, name: "bench", bench: true,
		in:    []input{arg("f32[256,512]", normal), arg("bf16[8192,512]", scaled(normal, 0.05)), arg("i32[256]", below(8192))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.LinearCrossEntropy(in[0], in[1], in[2])) }},
	{op: ir.LinearCrossEntropyGrad, name: "bench/many rows", bench: true,
		in: []input{arg("f32[2100,136]", normal), arg("bf16[1416,136]", scaled(normal, 0.05)), arg("i32[2100]", labels(1416)), arg("f32[]", positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			d := g.Apply(ir.LinearCrossEntropyGrad, nil, in...)
			return []ir.Value{d, g.Out(d, 1)}
		}},
	{op: ir.LinearCrossEntropyGrad, name: "bench", bench: true,
		in: []input{arg("f32[256,512]", normal), arg("bf16[8192,512]", scaled(normal, 0.05)), arg("i32[256]", below(8192)), arg("f32[]", positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			d := g.Apply(ir.LinearCrossEntropyGrad, nil, in...)
			return []ir.Value{d, g.Out(d, 1)}
		}},
}...)

func lossTable() []testCase {
	var all []testCase
	all = append(all, crossEntropyCases("", "7", "33", 33)...)
	all = append(all, crossEntropyCases("bounded", "n", "9", 9)...)
	all = append(all, crossEntropyCases("two classes", "5", "2", 2)...)
	all = append(all, linearCrossEntropyCases("f32", "7", "f32[33,12]", labels(33))...)
	all = append(all, linearCrossEntropyCases("bf16", "7", "bf16[33,12]", labels(33))...)
	all = append(all, linearCrossEntropyCases("f16", "6", "f16[33,12]", labels(33))...)
	all = append(all, linearCrossEntropyCases("bounded", "n", "bf16[17,12]", labels(17))...)
	all = append(all, linearCrossEntropyCases("every row", "n", "f32[17,12]", below(17))...)
	all = append(all, linearCrossEntropyCases("no labels", "3", "f32[17,12]", values(-100, -1, -100))...)
	return all
}

func adamWCase(name, typ string, scale float64) testCase {
	return testCase{op: ir.AdamW, name: name, bounds: "n=3/5",
		in: []input{arg(typ, normal), arg(typ, scaled(normal, 0.01)), arg(typ, scaled(positive, 1e-4)), arg(typ, scaled(normal, 0.1)),
			frozen("f32[3]", values(1-1e-3*0.01, 1e-3/(1-0.9), math.Sqrt(1-0.999))), frozen("f32[]", values(scale))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			p, m, v := g.AdamW(in[0], in[1], in[2], in[3], in[4], in[5], ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
			return []ir.Value{p, m, v}
		}}
}

// adamW8Case allows codes to differ by one, because devices that run the decomposition round sums twice.
func adamW8Case(name, shape, blocks string, scale float64) testCase {
	return testCase{op: ir.AdamW8, name: name, limit: 0.005,
		in: []input{arg("f32"+shape, normal), frozen("u8"+shape, below(256)), frozen("u8"+shape, below(256)), frozen("f32"+blocks, positive),
			frozen("f32"+blocks, positive), arg("f32"+shape, normal), frozen("f32[2,256]", dynamicMaps),
			frozen("f32[3]", values(1-1e-3*0.01, 1e-3/(1-0.9), math.Sqrt(1-0.999))), frozen("f32[]", values(scale))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			out := g.AdamW8(in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8], ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
			return out[:]
		}}
}

// dynamicMaps returns the 8-bit maps of bitsandbytes.
func dynamicMaps(*rand.Rand, []int) []float64 {
	var x []float64
	for _, v := range ir.AdamW8MapValues() {
		x = append(x, float64(v))
	}
	return x
}

var optimizerCases = []testCase{
	{op: ir.SumSquares, in: []input{arg("f32[7,33]", normal)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.SumSquares(in[0])) }},
	{op: ir.SumSquares, name: "bounded", bounds: "n=3/5", in: []input{arg("f32[n,5]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.SumSquares(in[0])) }},
	{op: ir.SumSquares, name: "long", in: []input{arg("f32[5,5003]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.SumSquares(in[0])) }},
	{op: ir.SumSquares, name: "scalar", in: []input{arg("f32[]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.SumSquares(in[0])) }},
	adamWCase("", "f32[5,33]", 1),
	adamWCase("clipped", "f32[40]", 0.125),
	adamWCase("long", "f32[3,8195]", 0.5),
	adamWCase("infinite", "f32[9]", math.Inf(1)),
	adamWCase("not a number", "f32[9]", math.NaN()),
	adamW8Case("", "[5,33]", "[1]", 1),
	adamW8Case("clipped", "[4,128]", "[2]", 0.125),
	adamW8Case("long", "[3,2739]", "[33]", 0.5), // two tasks on the CPU
	adamW8Case("infinite", "[300]", "[2]", math.Inf(1)),
	{op: ir.AdamW, name: "bench", bench: true,
		in: []input{arg("f32[1000000]", normal), arg("f32[1000000]", normal), arg("f32[1000000]", positive), arg("f32[1000000]", normal),
			arg("f32[3]", values(0.999, 0.01, 0.03)), arg("f32[]", values(1))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			p, m, v := g.AdamW(in[0], in[1], in[2], in[3], in[4], in[5], ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
			return []ir.Value{p, m, v}
		}},
}
