package conformance

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// codes8 returns numbers with random codes of F8_E4M3 that are numbers.
func codes8(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return float64(tensor.F8E4M3ToFloat32(uint8(r.IntN(127) | r.IntN(2)<<7))) })
}

// codes8WithNaN returns codes8 with a NaN among them.
func codes8WithNaN(r *rand.Rand, shape []int) []float64 {
	x := codes8(r, shape)
	x[len(x)/2] = math.NaN()
	return x
}

// rowScales are the scales of rows of weights in 8-bit floats.
var rowScales = scaled(positive, 0.01)

// evenScales are scales of rows that leave the rounding errors of all rows about equal.
func evenScales(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return 0.01 + 0.001*r.Float64() })
}

// float8 returns the weight in[w] as f32, scaled by in[w+1].
func float8(g *ir.Graph, in []ir.Value, w int) ir.Value {
	return g.Mul(g.Cast(in[w], tensor.F32), in[w+1])
}

// float8Cases multiply by weights in 8-bit floats with scales for rows, one scale or none. Devices may read the 8-bit
// floats in the kernels of the products.
func float8Cases() []testCase {
	scaledCase := func(name, x, w, rows string, p ir.ProductAttr, codes, scales fill) testCase {
		first := arg(x, normal)
		first.frozen = strings.HasPrefix(name, "not a number") // so are gradients
		return testCase{op: ir.Gemm, name: "f8 " + name, limit: gemmLimit, bounds: "n=3/8",
			in: []input{first, frozen("f8_e4m3["+w+"]", codes), frozen("f32["+rows+",1]", scales)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.Gemm([]ir.Product{{A: in[0], B: float8(g, in, 1), TA: p.TA, TB: p.TB, Alpha: p.Alpha}}, 0, 0))
			}}
	}
	forward, backward := ir.ProductAttr{TB: true, Alpha: 1}, ir.ProductAttr{Alpha: -0.5}
	weights := func(shapes ...string) (in []input) {
		for _, s := range shapes {
			rows := s[:2]
			in = append(in, frozen("f8_e4m3["+s+"]", codes8), frozen("f32["+rows+",1]", rowScales))
		}
		return in
	}
	// three are products of the same x.
	three := func(g *ir.Graph, in []ir.Value) []ir.Value {
		var out []ir.Value
		for i := range 3 {
			out = append(out, g.Linear(in[0], float8(g, in, 2*i+1), 0))
		}
		return out
	}
	// sum is the gradient of x by several products, and by an adapter.
	sum := func(count int) func(g *ir.Graph, in []ir.Value) []ir.Value {
		return func(g *ir.Graph, in []ir.Value) []ir.Value {
			ps := []ir.Product{{A: in[2*count+1], B: in[2*count+2], Alpha: 2}}
			for i := range count {
				ps = append(ps, ir.Product{A: in[0], B: float8(g, in, 2*i+1), Alpha: 1})
			}
			return one(g.Gemm(ps, 0, 0))
		}
	}
	return []testCase{
		scaledCase("weight", "f32[9,128]", "70,128", "70", forward, codes8, rowScales),
		scaledCase("weight backward", "f32[9,70]", "70,128", "70", backward, codes8, rowScales),
		scaledCase("vector", "f32[1,192]", "35,192", "35", forward, codes8, rowScales),
		scaledCase("odd rows", "f32[n,67]", "29,67", "29", forward, codes8, rowScales),
		scaledCase("odd rows backward", "f32[13,29]", "29,67", "29", backward, codes8, rowScales),
		scaledCase("both transposed", "f32[64,13]", "5,64", "5", ir.ProductAttr{TA: true, TB: true, Alpha: 1}, codes8, rowScales),
		scaledCase("bf16", "bf16[5,48]", "33,48", "33", forward, codes8, rowScales),
		scaledCase("one scale", "f32[3,64]", "24,64", "24", forward, codes8, values(0.02)),
		scaledCase("not a number", "f32[2,64]", "24,64", "24", forward, codes8WithNaN, rowScales),
		scaledCase("not a number, odd rows", "f32[2,35]", "24,35", "24", forward, codes8WithNaN, rowScales),
		scaledCase("not a number backward", "f32[20,24]", "24,64", "24", backward, codes8WithNaN, rowScales),
		scaledCase("batch", "f32[20,512]", "70,512", "70", forward, codes8, rowScales),
		scaledCase("not a number in a batch", "f32[12,256]", "70,256", "70", forward, codes8WithNaN, rowScales),
		scaledCase("a long axis", "f32[40,2112]", "24,2112", "24", forward, codes8, rowScales),
		{op: ir.Gemm, name: "f8 unscaled", limit: gemmLimit, in: []input{arg("f32[4,64]", normal), frozen("f8_e4m3[24,64]", codes8)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Linear(in[0], g.Cast(in[1], tensor.F32), 0)) }},
		{op: ir.Gemm, name: "f8 lora", limit: gemmLimit, bounds: "n=5/20",
			in: append([]input{arg("f32[n,64]", normal), arg("f32[n,4]", normal), arg("f32[24,4]", normal), arg("f32[24]", normal)}, weights("24,64")...),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.Gemm([]ir.Product{{A: in[0], B: float8(g, in, 4), TB: true, Alpha: 1}, {A: in[1], B: in[2], TB: true, Alpha: 0.5}}, in[3], 0))
			}},
		{op: ir.Gemm, name: "f8 of the same x", limit: gemmLimit, bounds: "n=2/8",
			in: append([]input{arg("f32[n,256]", normal)}, weights("24,256", "10,256", "17,256")...), build: three},
		{op: ir.Gemm, name: "f8 batch of the same x", limit: gemmLimit,
			in: append([]input{arg("f32[40,512]", normal)}, weights("70,512", "10,512", "33,512")...), build: three},
		{op: ir.Gemm, name: "f8 gate and up", limit: gemmLimit, bounds: "n=4/20",
			in: append([]input{arg("f32[n,256]", scaled(normal, 0.05))}, weights("70,256", "70,256")...),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.GLU(g.Linear(in[0], float8(g, in, 1), 0), g.Linear(in[0], float8(g, in, 3), 0), ir.SiLU))
			}},
		{op: ir.Gemm, name: "f8 gradient of three", limit: gemmLimit,
			in: append(append([]input{arg("f32[9,24]", normal)}, weights("24,48", "24,48", "24,48")...), arg("f32[9,4]", normal), arg("f32[4,48]", normal)), build: sum(3)},
		{op: ir.Gemm, name: "f8 gradient of four", limit: gemmLimit,
			in: append(append([]input{arg("f32[9,24]", normal)}, weights("24,48", "24,48", "24,48", "24,48")...), arg("f32[9,4]", normal), arg("f32[4,48]", normal)), build: sum(4)},
		withBench(scaledCase("many rows", "f32[1160,136]", "1416,136", "1416", forward, normal, evenScales)),
		withBench(scaledCase("many rows backward", "f32[1160,136]", "136,1416", "136", backward, normal, evenScales)),
	}
}

// withBench returns the case as one of the benchmarks.
func withBench(c testCase) testCase {
	c.name, c.bench = "bench/"+c.name, true
	return c
}
