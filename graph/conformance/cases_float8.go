package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
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

// float8 returns the weight in[w] as f32, scaled by in[w+1]: its rows, or its blocks if block is not zero.
func float8(g *ir.Graph, in []ir.Value, w int, block ir.DequantizeAttr) ir.Value {
	if block != (ir.DequantizeAttr{}) {
		return g.Dequantize(in[w], in[w+1], block)
	}
	return g.Mul(g.Cast(in[w], tensor.F32), in[w+1])
}

// weights8 are frozen weights in 8-bit floats and their scales, in turn.
func weights8(block ir.DequantizeAttr, codes, scales fill, shapes ...string) (in []input) {
	for _, s := range shapes {
		rows, columns, _ := strings.Cut(s, ",")
		of := rows + ",1"
		if block != (ir.DequantizeAttr{}) {
			r, _ := strconv.Atoi(rows)
			c, _ := strconv.Atoi(columns)
			grid := block.Scales(ir.ShapeOf(r, c))
			of = fmt.Sprintf("%d,%d", grid[0].N, grid[1].N)
		}
		in = append(in, frozen("f8_e4m3["+s+"]", codes), frozen("f32["+of+"]", scales))
	}
	return in
}

// float8Cases multiply by weights in 8-bit floats with scales for rows or blocks, one scale or none. Devices may read the
// 8-bit floats in the kernels of the products.
func float8Cases() []testCase {
	all := []testCase{
		{op: ir.Gemm, name: "f8 unscaled", limit: gemmLimit, in: []input{arg("f32[4,64]", normal), frozen("f8_e4m3[24,64]", codes8)},
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Linear(in[0], g.Cast(in[1], tensor.F32), 0)) }},
		// Scales of rows and of blocks are not of one product.
		{op: ir.Gemm, name: "f8 rows and blocks", limit: gemmLimit,
			in: slices.Concat([]input{arg("f32[9,24]", normal)}, weights8(ir.DequantizeAttr{}, codes8, rowScales, "24,48"), weights8(square(16), codes8, rowScales, "24,48", "24,48")),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.Gemm([]ir.Product{{A: in[0], B: float8(g, in, 1, ir.DequantizeAttr{}), Alpha: 1}, {A: in[0], B: float8(g, in, 3, square(16)), Alpha: 1},
					{A: in[0], B: float8(g, in, 5, square(16)), Alpha: 1}}, 0, 0))
			}},
	}
	all = append(all, scaledCases("f8", ir.DequantizeAttr{})...)
	all = append(all, scaledCases("f8 blocks", ir.DequantizeAttr{Rows: 16, Columns: 64})...)
	all = append(all, scaledCase("f8 blocks of 128 by 128", "f32[20,512]", "200,512", square(128), ir.ProductAttr{TB: true, Alpha: 1}, codes8, rowScales),
		scaledCase("f8 blocks of 128 by 128 backward", "f32[9,200]", "200,300", square(128), ir.ProductAttr{Alpha: 1}, codes8, rowScales))
	for _, d := range []ir.DequantizeAttr{{Rows: 3, Columns: 20}, {Rows: 1, Columns: 8}, {Rows: 64, Columns: 4}} {
		all = append(all, scaledCase(fmt.Sprintf("f8 blocks of %d by %d", d.Rows, d.Columns), "f32[5,67]", "29,67", d, ir.ProductAttr{TB: true, Alpha: 1}, codes8, rowScales))
	}
	return append(all, dequantizeCases...)
}

// square returns blocks of n by n.
func square(n int) ir.DequantizeAttr { return ir.DequantizeAttr{Rows: n, Columns: n} }

func scaledCase(name, x, w string, block ir.DequantizeAttr, p ir.ProductAttr, codes, scales fill) testCase {
	first := arg(x, normal)
	first.frozen = strings.Contains(name, "not a number") // so are gradients
	return testCase{op: ir.Gemm, name: name, limit: gemmLimit, bounds: "n=3/8", in: append([]input{first}, weights8(block, codes, scales, w)...),
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Gemm([]ir.Product{{A: in[0], B: float8(g, in, 1, block), TA: p.TA, TB: p.TB, Alpha: p.Alpha}}, 0, 0))
		}}
}

func scaledCases(kind string, block ir.DequantizeAttr) []testCase {
	scaledCase := func(name, x, w string, p ir.ProductAttr, codes, scales fill) testCase {
		return scaledCase(kind+" "+name, x, w, block, p, codes, scales)
	}
	forward, backward := ir.ProductAttr{TB: true, Alpha: 1}, ir.ProductAttr{Alpha: -0.5}
	weights := func(shapes ...string) []input { return weights8(block, codes8, rowScales, shapes...) }
	float8 := func(g *ir.Graph, in []ir.Value, w int) ir.Value { return float8(g, in, w, block) }
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
		scaledCase("weight", "f32[9,128]", "70,128", forward, codes8, rowScales),
		scaledCase("weight backward", "f32[9,70]", "70,128", backward, codes8, rowScales),
		scaledCase("vector", "f32[1,192]", "35,192", forward, codes8, rowScales),
		scaledCase("odd rows", "f32[n,67]", "29,67", forward, codes8, rowScales),
		scaledCase("odd rows backward", "f32[13,29]", "29,67", backward, codes8, rowScales),
		scaledCase("both transposed", "f32[64,13]", "5,64", ir.ProductAttr{TA: true, TB: true, Alpha: 1}, codes8, rowScales),
		scaledCase("bf16", "bf16[5,48]", "33,48", forward, codes8, rowScales),
		scaledCase("one scale", "f32[3,64]", "24,64", forward, codes8, values(0.02)),
		scaledCase("not a number", "f32[2,64]", "24,64", forward, codes8WithNaN, rowScales),
		scaledCase("not a number, odd rows", "f32[2,35]", "24,35", forward, codes8WithNaN, rowScales),
		scaledCase("not a number backward", "f32[20,24]", "24,64", backward, codes8WithNaN, rowScales),
		scaledCase("batch", "f32[20,512]", "70,512", forward, codes8, rowScales),
		scaledCase("not a number in a batch", "f32[12,256]", "70,256", forward, codes8WithNaN, rowScales),
		scaledCase("a long axis", "f32[40,2112]", "24,2112", forward, codes8, rowScales),
		{op: ir.Gemm, name: kind + " lora", limit: gemmLimit, bounds: "n=5/20",
			in: append([]input{arg("f32[n,64]", normal), arg("f32[n,4]", normal), arg("f32[24,4]", normal), arg("f32[24]", normal)}, weights("24,64")...),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.Gemm([]ir.Product{{A: in[0], B: float8(g, in, 4), TB: true, Alpha: 1}, {A: in[1], B: in[2], TB: true, Alpha: 0.5}}, in[3], 0))
			}},
		{op: ir.Gemm, name: kind + " of the same x", limit: gemmLimit, bounds: "n=2/8",
			in: append([]input{arg("f32[n,256]", normal)}, weights("24,256", "10,256", "17,256")...), build: three},
		{op: ir.Gemm, name: kind + " batch of the same x", limit: gemmLimit,
			in: append([]input{arg("f32[40,512]", normal)}, weights("70,512", "10,512", "33,512")...), build: three},
		{op: ir.Gemm, name: kind + " gate and up", limit: gemmLimit, bounds: "n=4/20",
			in: append([]input{arg("f32[n,256]", scaled(normal, 0.05))}, weights("70,256", "70,256")...),
			build: func(g *ir.Graph, in []ir.Value) []ir.Value {
				return one(g.GLU(g.Linear(in[0], float8(g, in, 1), 0), g.Linear(in[0], float8(g, in, 3), 0), ir.SiLU))
			}},
		{op: ir.Gemm, name: kind + " gradient of three", limit: gemmLimit,
			in: append(append([]input{arg("f32[9,24]", normal)}, weights("24,48", "24,48", "24,48")...), arg("f32[9,4]", normal), arg("f32[4,48]", normal)), build: sum(3)},
		{op: ir.Gemm, name: kind + " gradient of four", limit: gemmLimit,
			in: append(append([]input{arg("f32[9,24]", normal)}, weights("24,48", "24,48", "24,48", "24,48")...), arg("f32[9,4]", normal), arg("f32[4,48]", normal)), build: sum(4)},
		withBench(scaledCase("many rows", "f32[1160,136]", "1416,136", forward, normal, evenScales)),
		withBench(scaledCase("many rows backward", "f32[1160,136]", "136,1416", backward, normal, evenScales)),
	}
}

var dequantizeCases = []testCase{
	dequantizeCase("", "70,67", "5,5", square(16)),
	dequantizeCase("matrices", "3,20,30", "3,3,4", square(8)),
	dequantizeCase("one block", "9,11", "1,1", square(128)),
	dequantizeCase("rows", "5,40", "5,2", ir.DequantizeAttr{Rows: 1, Columns: 32}),
	dequantizeCase("odd blocks", "2,7,19", "2,3,4", ir.DequantizeAttr{Rows: 3, Columns: 5}),
	dequantizeCase("large", "260,1100", "3,9", square(128)),
}

func dequantizeCase(name, w, scales string, a ir.DequantizeAttr) testCase {
	return testCase{op: ir.Dequantize, name: name, in: []input{frozen("f8_e4m3["+w+"]", codes8), arg("f32["+scales+"]", rowScales)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Dequantize(in[0], in[1], a)) }}
}

// withBench returns the case as one of the benchmarks.
func withBench(c testCase) testCase {
	c.name, c.bench = "bench/"+c.name, true
	return c
}
