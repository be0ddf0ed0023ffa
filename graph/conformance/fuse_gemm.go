package conformance

import (
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func gemmPatterns() []pattern {
	abx := []input{arg("f32[n,6]", normal), arg("f32[6,8]", normal), arg("f32[n,8]", normal)}
	float8 := []input{arg("f32[n,6]", normal), arg("f8_e4m3[8,6]", codes8)}
	return []pattern{
		{"scale into alpha", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Scale(g.MatMul(in[0], in[1], false, false), -0.5))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 0, ir.Const: 0}},
		{"scale of a product that is read again", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			y := g.MatMul(in[0], in[1], false, false)
			return []ir.Value{g.Scale(y, -0.5), g.Unary(ir.Tanh, y)}
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 1}},
		{"scale of a product with a bias", append(abx, arg("f32[8]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Scale(g.Gemm([]ir.Product{{A: in[0], B: in[1], Alpha: 1}}, in[3], 0), -0.5))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 1}},
		{"addend", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(g.MatMul(in[0], in[1], false, false), in[2]))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 0}},
		{"addend first", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(in[2], g.MatMul(in[0], in[1], false, false)))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 0}},
		{"addend of a product that is read again", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			y := g.MatMul(in[0], in[1], false, false)
			return []ir.Value{g.Add(y, in[2]), g.Unary(ir.Tanh, y)}
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 1}},
		{"addend and bias", append(abx, arg("f32[8]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(in[2], g.Add(g.MatMul(in[0], in[1], false, false), in[3])))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 0}},
		{"addend of one column", append(abx, arg("f32[n,1]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(g.MatMul(in[0], in[1], false, false), in[3]))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 1}},
		{"addend of more rows", []input{arg("f32[1,6]", normal), arg("f32[6,8]", normal), arg("f32[n,8]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(g.MatMul(in[0], in[1], false, false), in[2]))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 1}},
		{"two products", append(abx, arg("f32[n,2]", normal), arg("f32[8,2]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			h := g.Scale(g.MatMul(in[3], in[4], false, true), 2)
			return one(g.Add(g.MatMul(in[0], in[1], false, false), h))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 0}},
		{"two products with bias and addend", append(abx, arg("f32[n,2]", normal), arg("f32[8,2]", normal), arg("f32[8]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			h := g.Add(g.MatMul(in[3], in[4], false, true), in[2])
			return one(g.Add(g.Linear(in[0], g.Transpose(in[1], 1, 0), in[5]), h))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 0, ir.Transpose: 0}},
		{"the same product twice", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			y := g.MatMul(in[0], in[1], false, false)
			return one(g.Add(y, y))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Binary: 1}},
		{"two products of which one is read again", append(abx, arg("f32[n,2]", normal), arg("f32[8,2]", normal)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			h := g.MatMul(in[3], in[4], false, true)
			return []ir.Value{g.Add(g.MatMul(in[0], in[1], false, false), h), g.Unary(ir.Exp, h)}
		}, map[ir.Op]int{ir.Gemm: 2, ir.Binary: 0}},
		{"more products than one Gemm takes", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			sum := g.MatMul(in[0], in[1], false, false)
			for i := range ir.MaxProducts + 2 {
				sum = g.Add(sum, g.MatMul(g.Scale(in[0], float64(i)+2), in[1], false, false))
			}
			return one(sum)
		}, map[ir.Op]int{ir.Gemm: 2, ir.Binary: ir.MaxProducts + 2}},
		{"transposed operands", []input{arg("f32[6,n]", normal), arg("f32[8,6]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.MatMul(g.Transpose(in[0], 1, 0), g.Transpose(in[1], 1, 0), false, false))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Transpose: 0}},
		{"transposed back", abx, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.MatMul(g.Transpose(in[0], 1, 0), g.Transpose(in[1], 1, 0), true, true))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Transpose: 0}},
		{"a transposed operand that is read again", []input{arg("f32[6,n]", normal), arg("f32[6,8]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			x := g.Transpose(in[0], 1, 0)
			return []ir.Value{g.MatMul(x, in[1], false, false), g.Unary(ir.Neg, x)}
		}, map[ir.Op]int{ir.Gemm: 1, ir.Transpose: 1}},
		{"transposed batches", []input{arg("f32[2,4,3]", normal), arg("f32[2,4,5]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.MatMul(g.Transpose(in[0], 0, 2, 1), in[1], false, false))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Transpose: 0}},
		{"batches in another order", []input{arg("f32[4,2,3]", normal), arg("f32[2,3,5]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.MatMul(g.Transpose(in[0], 1, 0, 2), in[1], false, false))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Transpose: 1}},
		{"weights in 8-bit floats", float8, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Linear(in[0], g.Cast(in[1], tensor.F32), 0))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Cast: 0}},
		{"weights in 8-bit floats with scales of rows", append(float8, arg("f32[8,1]", rowScales)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Linear(in[0], g.Mul(in[2], g.Cast(in[1], tensor.F32)), 0))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Cast: 0, ir.Binary: 0}},
		{"weights in 8-bit floats with scales of columns", append(float8, arg("f32[1,6]", rowScales)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Linear(in[0], g.Mul(in[2], g.Cast(in[1], tensor.F32)), 0))
		}, map[ir.Op]int{ir.Gemm: 1, ir.Cast: 1, ir.Binary: 1}},
		{"weights in 8-bit floats that are read again", append(float8, arg("f32[8,1]", rowScales)), func(g *ir.Graph, in []ir.Value) []ir.Value {
			w := g.Mul(g.Cast(in[1], tensor.F32), in[2])
			return []ir.Value{g.Linear(in[0], w, 0), g.Unary(ir.Tanh, w)}
		}, map[ir.Op]int{ir.Gemm: 1, ir.Cast: 1, ir.Binary: 1}},
		{"sum of batches", []input{arg("f32[2,4,3]", normal), arg("f32[2,3,5]", normal)}, func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Add(g.MatMul(in[0], in[1], false, false), g.MatMul(g.Unary(ir.Neg, in[0]), in[1], false, false)))
		}, map[ir.Op]int{ir.Gemm: 2, ir.Binary: 0}},
	}
}
