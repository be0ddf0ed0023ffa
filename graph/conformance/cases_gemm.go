package conformance

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// gemmLimit allows for the different order of long sums.
const gemmLimit = 5e-6

func gemmCases() []testCase {
	all := []testCase{
		gemmCase("vector", "f32[1,40]", "f32[9,40]", ir.ProductAttr{TB: true, Alpha: 1}),
		gemmCase("one column", "f32[7,40]", "f32[40,1]", ir.ProductAttr{Alpha: 1}),
		gemmCase("inner one", "f32[7,1]", "f32[1,9]", ir.ProductAttr{Alpha: 1}),
		gemmCase("alpha", "f32[7,13]", "f32[13,9]", ir.ProductAttr{Alpha: -0.37}),
		gemmCase("alpha zero", "f32[7,13]", "f32[13,9]", ir.ProductAttr{}),
		gemmCase("bounded rows", "f32[n,33]", "f32[17,33]", ir.ProductAttr{TB: true, Alpha: 1}),
		gemmCase("bounded inner", "f32[n,33]", "f32[n,17]", ir.ProductAttr{TA: true, Alpha: 1}),
		gemmCase("bf16 weight", "f32[5,67]", "bf16[29,67]", ir.ProductAttr{TB: true, Alpha: 1}),
		gemmCase("f16 weight", "f32[5,67]", "f16[29,67]", ir.ProductAttr{TB: true, Alpha: 1}),
		gemmCase("bf16 weight backward", "f32[5,29]", "bf16[29,67]", ir.ProductAttr{Alpha: 1}),
		gemmCase("bf16 both", "bf16[5,67]", "bf16[67,9]", ir.ProductAttr{Alpha: 0.5}),
		gemmCase("bf16 vector", "f32[1,129]", "bf16[35,129]", ir.ProductAttr{TB: true, Alpha: 1}),
		gemmCase("f16 transposed", "f16[67,5]", "f32[67,9]", ir.ProductAttr{TA: true, Alpha: 1}),
		gemmCase("large", "f32[129,131]", "f32[70,131]", ir.ProductAttr{TB: true, Alpha: 1}),
		gemmCase("batch bounded", "f32[3,n,5]", "f32[3,5,7]", ir.ProductAttr{Alpha: 2}),
		gemmCase("bounded batch", "f32[n,4,5]", "f32[n,7,5]", ir.ProductAttr{TB: true, Alpha: 1}),
	}
	for _, t := range []struct{ ta, tb bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		x, y := "13,21", "21,35"
		if t.ta {
			x = "21,13"
		}
		if t.tb {
			y = "35,21"
		}
		p := ir.ProductAttr{TA: t.ta, TB: t.tb, Alpha: 1}
		all = append(all,
			gemmCase("", "f32["+x+"]", "f32["+y+"]", p),
			gemmCase("batch", "f32[3,"+x+"]", "f32[3,"+y+"]", p))
	}
	return append(append(append(all, sumCases...), quantCases()...), float8Cases()...)
}

// gemmCase returns a case with one product, without bias and addend.
func gemmCase(name, x, y string, p ir.ProductAttr) testCase {
	flags := map[bool]string{false: "N", true: "T"}
	return testCase{op: ir.Gemm, name: fmt.Sprintf("%s%s %s", flags[p.TA], flags[p.TB], name), bounds: "n=3/8", limit: gemmLimit,
		in: []input{arg(x, normal), arg(y, normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TA: p.TA, TB: p.TB, Alpha: p.Alpha}}, 0, 0))
		}}
}

// sumCases add several products, a bias and an addend, as LoRA layers and their backward passes do.
var sumCases = []testCase{
	{op: ir.Gemm, name: "bias", limit: gemmLimit, bounds: "n=3/8",
		in: []input{arg("f32[n,21]", normal), arg("bf16[35,21]", normal), arg("f32[35]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}}, in[2], 0))
		}},
	{op: ir.Gemm, name: "addend", limit: gemmLimit, bounds: "n=3/8",
		in: []input{arg("f32[n,21]", normal), arg("f32[35,21]", normal), arg("f32[n,35]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1.5}}, 0, in[2]))
		}},
	{op: ir.Gemm, name: "addend twice used", limit: gemmLimit,
		in: []input{arg("f32[7,7]", normal), arg("f32[7,7]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}}, 0, in[0]))
		}},
	{op: ir.Gemm, name: "batch with bias and addend", limit: gemmLimit,
		in: []input{arg("f32[3,5,6]", normal), arg("f32[3,6,7]", normal), arg("f32[7]", normal), arg("f32[3,5,7]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], Alpha: -1}}, in[2], in[3]))
		}},
	{op: ir.Gemm, name: "lora", limit: gemmLimit, bounds: "n=5/8",
		in: []input{arg("f32[n,40]", normal), arg("bf16[24,40]", normal), arg("f32[n,4]", normal), arg("f32[24,4]", normal), arg("f32[24]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}, {A: in[2], B: in[3], TB: true, Alpha: 0.5}}, in[4], 0))
		}},
	{op: ir.Gemm, name: "lora backward", limit: gemmLimit, bounds: "n=5/8",
		in: []input{arg("f32[n,24]", normal), arg("f16[24,40]", normal), arg("f32[n,4]", normal), arg("f32[4,40]", normal), arg("f32[n,40]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], Alpha: 1}, {A: in[2], B: in[3], Alpha: 2}}, 0, in[4]))
		}},
	{op: ir.Gemm, name: "factors far apart", limit: gemmLimit,
		in: []input{arg("f32[9,40]", normal), arg("f32[24,40]", normal), frozen("f32[24,40]", tiny), arg("f32[24]", normal), arg("f32[9,24]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}, {A: in[0], B: in[2], TB: true, Alpha: 0x1p70}}, in[3], in[4]))
		}},
	// Few outputs and a long k axis, which devices split.
	{op: ir.Gemm, name: "a long axis", limit: gemmLimit,
		in: []input{frozen("f32[9,1100]", normal), frozen("f32[10,1100]", normal), frozen("f32[9,600]", normal), frozen("bf16[10,600]", normal), frozen("f32[10]", normal), frozen("f32[9,10]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}, {A: in[2], B: in[3], TB: true, Alpha: 0.5}}, in[4], in[5]))
		}},
	{op: ir.Gemm, name: "a long axis of columns", limit: gemmLimit,
		in: []input{frozen("f32[1100,9]", normal), frozen("f32[1100,10]", normal), frozen("f32[9,10]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TA: true, Alpha: 2}}, 0, in[2]))
		}},
	{op: ir.Gemm, name: "eight products", limit: gemmLimit,
		in: []input{arg("f32[5,9]", normal), arg("f32[9,11]", normal), arg("f32[5,3]", normal), arg("f32[11,3]", normal),
			arg("f32[2,5]", normal), arg("bf16[2,11]", normal), arg("f32[11]", normal), arg("f32[5,11]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			var ps []ir.Product
			for i := range 8 {
				alpha := float32(i) - 2.5
				switch i % 3 {
				case 0:
					ps = append(ps, ir.Product{A: in[0], B: in[1], Alpha: alpha})
				case 1:
					ps = append(ps, ir.Product{A: in[2], B: in[3], TB: true, Alpha: alpha})
				case 2:
					ps = append(ps, ir.Product{A: in[4], B: in[5], TA: true, Alpha: alpha})
				}
			}
			return one(g.Gemm(ps, in[6], in[7]))
		}},
	{op: ir.Gemm, name: "bench/512", bench: true, in: []input{arg("f32[512,512]", normal), arg("f32[512,512]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.MatMul(in[0], in[1], false, true)) }},
	{op: ir.Gemm, name: "bench/many rows", bench: true,
		in: []input{arg("f32[1160,264]", normal), arg("bf16[2824,264]", normal), arg("f32[1160,8]", normal), arg("f32[2824,8]", normal), arg("f32[2824]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}, {A: in[2], B: in[3], TB: true, Alpha: 0.5}}, in[4], 0))
		}},
	{op: ir.Gemm, name: "bench/many rows f16", bench: true, in: []input{arg("f32[1160,136]", normal), arg("f16[1416,136]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Linear(in[0], in[1], 0)) }},
	{op: ir.Gemm, name: "bench/many rows backward", bench: true,
		in: []input{arg("f32[1160,264]", normal), arg("bf16[264,1416]", normal), arg("f32[1160,8]", normal), arg("f32[8,1416]", normal), arg("f32[1160,1416]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], Alpha: 1}, {A: in[2], B: in[3], Alpha: 2}}, 0, in[4]))
		}},
	gatedCase(ir.GLU, "1160", "1416", ir.SiLU, false), gatedCase(ir.GLU, "1160", "2824", ir.GELU, true),
	gatedCase(ir.GLUGrad, "1160", "1416", ir.GELUTanh, true), gatedCase(ir.GLUGrad, "1160", "2824", ir.SiLU, true),
	{op: ir.Gemm, name: "bench/decode bf16", bench: true, in: []input{arg("f32[1,2048]", normal), arg("bf16[2048,2048]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Linear(in[0], in[1], 0)) }},
	{op: ir.Gemm, name: "bench/lora bf16", bench: true,
		in: []input{arg("f32[256,1024]", normal), arg("bf16[1024,1024]", normal), arg("f32[256,16]", normal), arg("f32[1024,16]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}, {A: in[2], B: in[3], TB: true, Alpha: 0.5}}, 0, 0))
		}},
}

// gatedCase is a GLU of two products, or the gradient of one for a product. If only is set, the products are no results.
// An error of a factor times the other factor may be large beside most results.
func gatedCase(op ir.Op, rows, columns string, act ir.Activation, only bool) testCase {
	x, w, y := arg("f32["+rows+",136]", normal), arg("bf16["+columns+",136]", normal), arg("f32["+rows+","+columns+"]", normal)
	c := testCase{op: op, name: "bench/products, " + columns + " columns", bench: true, limit: 0.04, in: []input{x, w, w}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		gate, up := g.Linear(in[0], in[1], 0), g.Linear(in[0], in[2], 0)
		if only {
			return one(g.GLU(gate, up, act))
		}
		return []ir.Value{g.GLU(gate, up, act), gate, up}
	}}
	if op == ir.GLUGrad {
		c.in = []input{x, arg("bf16[136,"+columns+"]", normal), y, y}
		c.build = func(g *ir.Graph, in []ir.Value) []ir.Value {
			d := g.Apply(op, ir.GLUAttr{Act: act}, g.MatMul(in[0], in[1], false, false), in[2], in[3])
			return []ir.Value{d, g.Out(d, 1)}
		}
	}
	return c
}
