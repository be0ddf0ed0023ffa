package conformance

import (
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// quantCases multiply by quantized weights, in the layouts of a linear layer and of its backward pass. Blocks start
// with a row or inside one.
func quantCases() []testCase {
	var all []testCase
	for _, w := range []string{"q8", "nf4", "fp4"} {
		all = append(all,
			gemmCase(w+" weight", "f32[9,128]", w+"[70,128]", ir.ProductAttr{TB: true, Alpha: 1}),
			gemmCase(w+" weight backward", "f32[9,70]", w+"[70,128]", ir.ProductAttr{Alpha: -0.5}),
			gemmCase(w+" vector", "f32[1,192]", w+"[35,192]", ir.ProductAttr{TB: true, Alpha: 1}),
			gemmCase(w+" odd rows", "f32[n,67]", w+"[29,67]", ir.ProductAttr{TB: true, Alpha: 2}),
			gemmCase(w+" odd rows backward", "f32[13,29]", w+"[29,67]", ir.ProductAttr{Alpha: 1}),
			gemmCase(w+" both transposed", "f32[64,13]", w+"[5,64]", ir.ProductAttr{TA: true, TB: true, Alpha: 1}),
			testCase{op: ir.Gemm, name: "lora " + w, limit: gemmLimit, bounds: "n=5/20",
				in: []input{arg("f32[n,64]", normal), arg(w+"[24,64]", normal), arg("f32[n,4]", normal), arg("f32[24,4]", normal), arg("f32[24]", normal)},
				build: func(g *ir.Graph, in []ir.Value) []ir.Value {
					return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], TB: true, Alpha: 1}, {A: in[2], B: in[3], TB: true, Alpha: 0.5}}, in[4], 0))
				}},
			testCase{op: ir.Gemm, name: "lora backward " + w, limit: gemmLimit, bounds: "n=11/20",
				in: []input{arg("f32[n,24]", normal), arg(w+"[24,40]", normal), arg("f32[n,4]", normal), arg("f32[4,40]", normal), arg("f32[n,40]", normal)},
				build: func(g *ir.Graph, in []ir.Value) []ir.Value {
					return one(g.Gemm([]ir.Product{{A: in[0], B: in[1], Alpha: 1}, {A: in[2], B: in[3], Alpha: 2}}, 0, in[4]))
				}},
			testCase{op: ir.LinearCrossEntropy, name: w, limit: gemmLimit,
				in: []input{arg("f32[11,64]", normal), arg(w+"[40,64]", scaled(normal, 0.2)), arg("i32[11]", labels(40))},
				build: func(g *ir.Graph, in []ir.Value) []ir.Value {
					return one(g.LinearCrossEntropy(in[0], in[1], in[2]))
				}},
			testCase{op: ir.Cast, name: w + " to f32", in: []input{arg(w+"[130,67]", normal)},
				build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Cast(in[0], tensor.F32)) }})
	}
	return all
}
