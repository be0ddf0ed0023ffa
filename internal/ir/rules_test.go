package ir

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

// ruleCase is an operation on params p(0), p(1), ... of given types, and the
// types of its outputs or the message of its refusal.
type ruleCase struct {
	in    []Type
	build func(g *Graph, p []Value) Value
	want  string
}

func bf16(dims ...int) Type { return Type{tensor.BF16, ShapeOf(dims...)} }

func q8(dims ...int) Type { return Type{tensor.Q8, ShapeOf(dims...)} }

func f8(dims ...int) Type { return Type{tensor.F8E4M3, ShapeOf(dims...)} }

func boolean(dims ...int) Type { return Type{tensor.Bool, ShapeOf(dims...)} }

func mat(dims ...int) Type { return f32(ShapeOf(dims...)) }

func types(ts ...Type) []Type { return ts }

// n is the bounded dimension of the cases.
var n = Dim{1, 1}

func nType(d tensor.DType, axes ...Dim) Type { return Type{d, axes} }

var ruleCases = []ruleCase{
	{types(mat(4, 6), q8(9, 6)), func(g *Graph, p []Value) Value { return g.MatMul(p[0], p[1], false, true) }, "f32[4,9]"},
	{types(q8(9, 6), mat(6, 4)), func(g *Graph, p []Value) Value { return g.MatMul(p[0], p[1], false, false) }, "product 0 of q8[9,6] and f32[6,4]"},
	{types(mat(2, 4, 6), q8(2, 6, 9)), func(g *Graph, p []Value) Value { return g.MatMul(p[0], p[1], false, false) }, "product 0 of f32[2,4,6] and q8[2,6,9]"},
	{types(q8(9, 6)), func(g *Graph, p []Value) Value { return g.Transpose(p[0], 1, 0) }, "q8[9,6] is quantised: it can be multiplied with, and cast"},
	{types(q8(9, 6)), func(g *Graph, p []Value) Value { return g.Cast(p[0], tensor.F32) }, "f32[9,6]"},
	{types(mat(9, 6)), func(g *Graph, p []Value) Value { return g.Cast(p[0], tensor.NF4) }, "to NF4: values are quantised before a program runs"},
	{types(q8(9, 6), i32(4)), func(g *Graph, p []Value) Value { return g.GatherRows(p[0], p[1]) }, "expected a float table"},
	{types(q8(9, 6)), func(g *Graph, p []Value) Value {
		return g.Gradients(g.SumSquares(g.Cast(p[0], tensor.F32)), p[:1], GradOptions{})[0]
	}, `gradients: param "p0" q8[9,6] is quantised, and cannot be trained`},
	{types(mat(4, 6), mat(5, 6), i32(4), mat(3, 4, 5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Bias: ScoreBias}, p[3])
		return o
	}, "f32[4,6] f32[4,3]"},
	{types(mat(4, 6), mat(5, 6), i32(4), mat(3, 4, 4)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Bias: ScoreBias}, p[3])
		return o
	}, "bias f32[3,4,4] of 3 heads, 4 queries and 5 keys"},
	{types(mat(4, 6), mat(5, 6), i32(4), mat(3, 7)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Bias: RelativeBias}, p[3])
		return o
	}, "a relative bias for 4 queries and 5 keys, expected as many"},
	{types(mat(4, 6), mat(4, 6), i32(4), mat(3, 6)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Bias: RelativeBias}, p[3])
		return o
	}, "bias f32[3,6] of 3 heads, 4 queries and 4 keys"},
	{types(mat(4, 6), i32(4)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[0], p[0], p[1], p[1], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, SoftCap: -1})
		return o
	}, "soft cap -1, bias 0"},
	{types(mat(4, 6), i32(4), mat(3, 6), q8(7, 64)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:], TB: true})
	}, "matrix 1 q8[7,64] reads 64 columns and gives 7, expected 1 to 6 and 1 to 7"},
	{types(mat(4, 64), i32(4), mat(3, 6), q8(7, 64)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:], TB: true})
	}, "f32[4,7]"},
	{types(mat(4, 6), i32(5), mat(3, 6)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:], TB: true})
	}, "x f32[4,6] and index i32[5], expected f32 [n,k] with a fixed k and i32 [n]"},
	{types(mat(4, 6), i32(4), mat(2, 3, 6), mat(3)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:3], Stacked: true, TB: true, Scale: p[3]})
	}, "scale f32[3], expected f32[2]"},
	{types(mat(4, 64), i32(4), nType(tensor.MXFP4, ShapeOf(3, 8, 64)...)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:], Stacked: true, TB: true})
	}, "f32[4,8]"},
	{types(mat(4, 48), i32(4), nType(tensor.MXFP4, ShapeOf(3, 8, 48)...)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:], Stacked: true, TB: true})
	}, "matrix 0 is mxfp4[3,8,48], expected rank 3 of floats, or of whole blocks"},
	{types(mat(4, 64), i32(4), q8(3, 8, 64)), func(g *Graph, p []Value) Value {
		return g.RowsGemm(RowsProduct{X: p[0], Index: p[1], Weights: p[2:], Stacked: true, TB: true})
	}, "matrix 0 is q8[3,8,64], expected rank 3 of floats, or of whole blocks"},
	{types(mat(4, 6), i32(4)), func(g *Graph, p []Value) Value { return g.RowsGemm(RowsProduct{X: p[0], Index: p[1]}) }, "RowsGemm: 0 weights, expected matrices or one stack of them"},
	{types(mat(4, 6), mat(2, 6), i32(2)), func(g *Graph, p []Value) Value { return g.ScatterRows(p[0], p[1], p[2]) }, "f32[4,6]"},
	{types(mat(4, 6), mat(2, 6), i32(3)), func(g *Graph, p []Value) Value { return g.ScatterRows(p[0], p[1], p[2]) }, "expected a table [v,...] of floats, rows [n,...] like its own and i32 index [n]"},
	{types(nType(tensor.F32, Static(4), n), nType(tensor.F32, Static(2), n), i32(2)), func(g *Graph, p []Value) Value { return g.ScatterRows(p[0], p[1], p[2]) }, "rows of f32[4,v1] have no fixed size"},
	{types(mat(2, 5, 8, 6), bf16(9, 3, 3, 6), mat(9)), func(g *Graph, p []Value) Value {
		return g.Conv2D(p[0], p[1], p[2], Conv2DAttr{Stride: 2, Bottom: 1, Right: 1})
	}, "f32[2,2,4,9]"},
	{types(mat(1, 5, 8, 6), mat(9, 3, 3, 5)), func(g *Graph, p []Value) Value { return g.Conv2D(p[0], p[1], 0, Conv2DAttr{Stride: 1}) }, "expected a float weight [out,kh,kw,6] of fixed sizes"},
	{types(mat(1, 5, 8, 6), q8(9, 3, 3, 64)), func(g *Graph, p []Value) Value { return g.Conv2D(p[0], p[1], 0, Conv2DAttr{Stride: 1}) }, "expected a float weight [out,kh,kw,6] of fixed sizes"},
	{types(mat(1, 5, 8, 6), mat(9, 3, 3, 6), mat(6)), func(g *Graph, p []Value) Value { return g.Conv2D(p[0], p[1], p[2], Conv2DAttr{Stride: 1}) }, "bias f32[6], expected f32[9]"},
	{types(mat(1, 5, 8, 6), mat(9, 3, 3, 6)), func(g *Graph, p []Value) Value { return g.Conv2D(p[0], p[1], 0, Conv2DAttr{Top: 1}) }, "stride 0, zeros above 1, left 0, below 0, right 0"},
	{types(mat(1, 1, 8, 6), mat(9, 3, 3, 6)), func(g *Graph, p []Value) Value { return g.Conv2D(p[0], p[1], 0, Conv2DAttr{Stride: 1, Top: 1}) }, "a window of 3 by 3 is larger than the image"},
	{types(nType(tensor.F32, Static(1), n, Static(8), Static(6)), mat(9, 3, 3, 6)), func(g *Graph, p []Value) Value { return g.Conv2D(p[0], p[1], 0, Conv2DAttr{Stride: 1}) }, "expected f32 images [b,h,w,c] of fixed sizes"},
	{types(mat(1, 5, 8, 6), mat(6)), func(g *Graph, p []Value) Value { return g.GroupNorm(p[0], p[1], p[1], 4, 1) }, "6 channels in 4 groups"},
	{types(mat(1, 5, 8, 6), mat(6), mat(8)), func(g *Graph, p []Value) Value { return g.GroupNorm(p[0], p[1], p[2], 3, 1) }, "expected weight and bias f32[6], got f32[6] and f32[8]"},
	{types(mat(6)), func(g *Graph, p []Value) Value { return g.GroupNorm(p[0], p[0], p[0], 3, 1) }, "expected f32 x [b,...,c] of fixed sizes"},
	{types(f8(5, 6), mat(3, 2)), func(g *Graph, p []Value) Value { return g.Dequantize(p[0], p[1], DequantizeAttr{2, 4}) }, "f32[5,6]"},
	{types(f8(5, 6), mat(2, 2)), func(g *Graph, p []Value) Value { return g.Dequantize(p[0], p[1], DequantizeAttr{2, 4}) }, "expected scales f32[3,2], got f32[2,2]"},
	{types(mat(5, 6), mat(3, 2)), func(g *Graph, p []Value) Value { return g.Dequantize(p[0], p[1], DequantizeAttr{2, 4}) }, "expected matrices of f8_e4m3 of fixed sizes"},
	{types(f8(5, 6), mat(3, 2)), func(g *Graph, p []Value) Value { return g.Dequantize(p[0], p[1], DequantizeAttr{2, 0}) }, "blocks of 2 by 0"},
	{types(mat(4, 6), f8(5, 6), mat(5, 1)), func(g *Graph, p []Value) Value {
		a := GemmAttr{N: 1, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}}, Float8: 1, Scaled: 1, Block: DequantizeAttr{2, 4}}
		return g.Apply(Gemm, a, p...)
	}, "product 0 of f8_e4m3[5,6] with scales f32[5,1]"},
	{types(mat(2, 5, 8, 6)), func(g *Graph, p []Value) Value { return g.Upsample(p[0], 2) }, "f32[2,10,16,6]"},
	{types(mat(2, 5, 8)), func(g *Graph, p []Value) Value { return g.Upsample(p[0], 2) }, "Upsample of f32[2,5,8] by 2, expected images [b,h,w,c] of fixed sizes"},
	{types(mat(4, 6)), func(g *Graph, p []Value) Value { _, i := g.TopK(p[0], 2); return i }, "i32[4,2]"},
	{types(mat(4, 6)), func(g *Graph, p []Value) Value { v, _ := g.TopK(p[0], 7); return v }, "the 7 largest of 6 elements"},
	{types(i32(4, 6)), func(g *Graph, p []Value) Value { v, _ := g.TopK(p[0], 1); return v }, "expected f32 x [...,n] with a fixed n"},
	{types(mat(4, 6), mat(6)), func(g *Graph, p []Value) Value { return g.LayerNorm(p[0], p[1], 0, 1) }, "f32[4,6]"},
	{types(mat(4, 6), mat(4)), func(g *Graph, p []Value) Value { return g.LayerNorm(p[0], 0, p[1], 1) }, "expected weight and bias f32[6], got f32[4]"},
	{types(bf16(4, 6)), func(g *Graph, p []Value) Value { return g.LayerNorm(p[0], 0, 0, 1) }, "expected f32 x [...,d] with a fixed d"},
	{types(mat(4, 6)), func(g *Graph, p []Value) Value { return g.Unary(Exp, p[0]) }, "f32[4,6]"},
	{types(i32(4)), func(g *Graph, p []Value) Value { return g.Unary(Exp, p[0]) }, "Unary[i32[4]]: Exp of I32, expected F32"},
	{types(mat(4, 1), mat(5)), func(g *Graph, p []Value) Value { return g.Add(p[0], p[1]) }, "f32[4,5]"},
	{types(nType(tensor.F32, n, Static(3)), mat(3)), func(g *Graph, p []Value) Value { return g.Add(p[0], p[1]) }, "f32[v1,3]"},
	{types(mat(4, 2), mat(4, 3)), func(g *Graph, p []Value) Value { return g.Add(p[0], p[1]) }, "Binary[f32[4,2] f32[4,3]]: [4,2] and [4,3] do not fit each other at axis 1"},
	{types(nType(tensor.F32, n), mat(8)), func(g *Graph, p []Value) Value { return g.Add(p[0], p[1]) }, "[v1] and [8] do not fit each other at axis 0"},
	{types(mat(4), i32(4)), func(g *Graph, p []Value) Value { return g.Add(p[0], p[1]) }, "Binary[f32[4] i32[4]]: expected both to be F32, I32 or U32"},
	{types(bf16(4), bf16(4)), func(g *Graph, p []Value) Value { return g.Add(p[0], p[1]) }, "expected both to be F32, I32 or U32"},
	{types(i32(4), i32(4)), func(g *Graph, p []Value) Value { return g.Div(p[0], p[1]) }, "Div of I32, expected F32"},
	{types(mat(4), mat(2, 1)), func(g *Graph, p []Value) Value { return g.Compare(Less, p[0], p[1]) }, "bool[2,4]"},
	{types(boolean(2, 1), mat(4), mat()), func(g *Graph, p []Value) Value { return g.Where(p[0], p[1], p[2]) }, "f32[2,4]"},
	{types(mat(4), mat(4), mat(4)), func(g *Graph, p []Value) Value { return g.Where(p[0], p[1], p[2]) }, "expected a bool, and two of F32, I32, U32 or BOOL"},
	{types(mat(2, 3, 4)), func(g *Graph, p []Value) Value { return g.Reduce(ReduceSum, p[0], 1) }, "f32[2,4]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Reduce(ReduceMax, p[0], 2) }, "Reduce[f32[2,3]]: axis 2 of f32[2,3]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.ArgMax(p[0]) }, "i32[2]"},
	{types(mat()), func(g *Graph, p []Value) Value { return g.ArgMax(p[0]) }, "expected one F32 with an axis"},
	{types(nType(tensor.F32, Dim{2, 1}, Static(6))), func(g *Graph, p []Value) Value { return g.Reshape(p[0], Shape{n, Static(12)}) }, "f32[v1,12]"},
	{types(mat(2, 6)), func(g *Graph, p []Value) Value { return g.Reshape(p[0], ShapeOf(3, 5)) }, "Reshape[f32[2,6]]: cannot become f32[3,5]: the number of elements differs"},
	{types(nType(tensor.F32, n, Dim{1, 2}, Static(6))), func(g *Graph, p []Value) Value { return g.Reshape(p[0], Shape{n, Dim{1, 2}, Static(5)}) }, "the number of elements differs"},
	{types(nType(tensor.F32, n, n)), func(g *Graph, p []Value) Value { return g.Reshape(p[0], Shape{n, Dim{1, 2}}) }, "the number of elements differs"},
	{types(nType(tensor.F32, n, Dim{1, 2}, Static(6))), func(g *Graph, p []Value) Value { return g.Reshape(p[0], Shape{{3, 2}, {2, 1}}) }, "f32[3*v2,2*v1]"},
	{types(mat(2, 6)), func(g *Graph, p []Value) Value { return g.Reshape(p[0], ShapeOf(1, 1, 2, 3, 2)) }, "a shape of 5 axes, at most 4"},
	{types(mat(2, 6)), func(g *Graph, p []Value) Value { return g.Broadcast(p[0], ShapeOf(1, 1, 1, 2, 6)) }, "a shape of 5 axes, at most 4"},
	{nil, func(g *Graph, _ []Value) Value { return g.Const(1, mat(1, 1, 1, 1, 1)) }, "a shape of 5 axes, at most 4"},
	{nil, func(g *Graph, _ []Value) Value { return g.Const(1, bf16(2)) }, "a constant of BF16, expected F32, I32, U32 or BOOL"},
	{nil, func(g *Graph, _ []Value) Value { return g.Const(1, mat(3, -1)) }, "axis 1 of f32[3,-1] is negative"},
	{nil, func(g *Graph, _ []Value) Value { return g.Iota(2, ShapeOf(2, 3)) }, "axis 2 of a shape with 2 axes"},
	{types(RandomKey), func(g *Graph, p []Value) Value { return g.Philox(p[0], 1, ShapeOf(5)) }, "u32[5]"},
	{types(i32(3)), func(g *Graph, p []Value) Value { return g.Philox(p[0], 1, ShapeOf(5)) }, "expected a key u32[3]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Transpose(p[0], 1, 0) }, "f32[3,2]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Transpose(p[0]) }, "[] is not an order of the axes of f32[2,3]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Transpose(p[0], 1, 1) }, "[1 1] is not an order of the axes of f32[2,3]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Transpose(p[0], 0, 2) }, "[0 2] is not an order of the axes of f32[2,3]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Transpose(p[0], 0, 1, 2, 3, 4) }, "Transpose: more than 4 axes"},
	{types(mat(3)), func(g *Graph, p []Value) Value { return g.Broadcast(p[0], ShapeOf(2, 3)) }, "f32[2,3]"},
	{types(mat(3)), func(g *Graph, p []Value) Value { return g.Broadcast(p[0], ShapeOf(3, 2)) }, "Broadcast[f32[3]]: cannot be repeated to f32[3,2]"},
	{types(mat(2, 3)), func(g *Graph, p []Value) Value { return g.Broadcast(p[0], ShapeOf(3)) }, "cannot be repeated to f32[3]"},
	{types(mat(5, 3)), func(g *Graph, p []Value) Value { return g.Slice(p[0], 0, 1, 4) }, "f32[3,3]"},
	{types(mat(5, 3)), func(g *Graph, p []Value) Value { return g.Slice(p[0], 0, 1, 6) }, "range [1,6) of axis 0 of f32[5,3]"},
	{types(nType(tensor.F32, n)), func(g *Graph, p []Value) Value { return g.Slice(p[0], 0, 0, 1) }, "f32[v1]"},
	{types(nType(tensor.F32, Dim{3, 1})), func(g *Graph, p []Value) Value { return g.Slice(p[0], 0, 1, 3) }, "f32[2*v1]"},
	{types(nType(tensor.F32, Dim{3, 1})), func(g *Graph, p []Value) Value { return g.Slice(p[0], 0, 1, 4) }, "range [1,4) of axis 0 of f32[3*v1]"},
	{types(nType(tensor.F32, Dim{3, 1}), nType(tensor.F32, n)), func(g *Graph, p []Value) Value { return g.Concat(0, p...) }, "f32[4*v1]"},
	{types(nType(tensor.F32, n), mat(4)), func(g *Graph, p []Value) Value { return g.Concat(0, p...) }, "f32[v1] and f32[4] have no sum along axis 0: write the rows of both into one table by ScatterRows"},
	{types(mat(5, 3), mat(5, 2)), func(g *Graph, p []Value) Value { return g.Concat(1, p...) }, "f32[5,5]"},
	{types(mat(5, 3), mat(4, 2)), func(g *Graph, p []Value) Value { return g.Concat(1, p...) }, "Concat[f32[5,3] f32[4,2]]: f32[4,2] does not fit f32[5,3]"},
	{types(mat(5, 3), bf16(5, 2)), func(g *Graph, p []Value) Value { return g.Concat(1, p...) }, "bf16[5,2] does not fit f32[5,3]"},
	{nil, func(g *Graph, _ []Value) Value { return g.Concat(0) }, "axis 0 of 0 inputs"},
	{types(mat(4)), func(g *Graph, p []Value) Value { return g.Cast(p[0], tensor.BF16) }, "bf16[4]"},
	{types(bf16(4)), func(g *Graph, p []Value) Value { return g.Cast(p[0], tensor.F16) }, "to F16, expected to or from F32"},
	{types(mat(4, 6), bf16(5, 6)), func(g *Graph, p []Value) Value { return g.Linear(p[0], p[1], 0) }, "f32[4,5]"},
	{types(mat(4, 6), mat(5, 7)), func(g *Graph, p []Value) Value { return g.Linear(p[0], p[1], 0) }, "Gemm[f32[4,6] f32[5,7]]: product 0: inner sizes 6 and 7 differ (f32[4,6], f32[5,7])"},
	{types(mat(4, 6), mat(5, 6), mat(4)), func(g *Graph, p []Value) Value { return g.Linear(p[0], p[1], p[2]) }, "bias f32[4], expected f32[5]"},
	{types(mat(4, 6), mat(6, 5), mat(5, 4)), func(g *Graph, p []Value) Value { return g.Gemm([]Product{{A: p[0], B: p[1], Alpha: 1}}, 0, p[2]) }, "addend f32[5,4], expected f32[4,5]"},
	{types(mat(4, 6), mat(6, 5)), func(g *Graph, p []Value) Value {
		return g.Gemm([]Product{{A: p[0], B: p[1], Alpha: 1}, {A: p[1], B: p[0], Alpha: 1}}, 0, 0)
	}, "product 1: inner sizes 5 and 4 differ"},
	{types(mat(4, 6), mat(6, 5), mat(3, 6)), func(g *Graph, p []Value) Value {
		return g.Gemm([]Product{{A: p[0], B: p[1], Alpha: 1}, {A: p[2], B: p[1], Alpha: 1}}, 0, 0)
	}, "product 1 is f32[3,5], the first f32[4,5]"},
	{types(mat(2, 4, 6), mat(3, 6, 5)), func(g *Graph, p []Value) Value { return g.MatMul(p[0], p[1], false, false) }, "batches of 2 and 3"},
	{types(mat(4, 6), i32(6, 5)), func(g *Graph, p []Value) Value { return g.MatMul(p[0], p[1], false, false) }, "product 0 of f32[4,6] and i32[6,5]"},
	{types(mat(6)), func(g *Graph, p []Value) Value { return g.MatMul(p[0], p[0], false, false) }, "expected matrices, or one product of two batches of matrices"},
	{types(mat(4, 6)), func(g *Graph, p []Value) Value { return g.Gemm(make([]Product, 9), 0, 0) }, "Gemm: 9 products, at most 8"},
	{nil, func(g *Graph, _ []Value) Value { return g.Gemm(nil, 0, 0) }, "0 products, expected 1 to 8"},
	{types(bf16(9, 6), i32(4)), func(g *Graph, p []Value) Value { return g.GatherRows(p[0], p[1]) }, "f32[4,6]"},
	{types(mat(9, 6), mat(4)), func(g *Graph, p []Value) Value { return g.GatherRows(p[0], p[1]) }, "expected a float table [v,d] and i32 ids"},
	{types(mat(4, 6), i32(4)), func(g *Graph, p []Value) Value { return g.ScatterAddRows(p[0], p[1], Static(9)) }, "f32[9,6]"},
	{types(mat(4, 6), i32(5)), func(g *Graph, p []Value) Value { return g.ScatterAddRows(p[0], p[1], Static(9)) }, "expected f32 rows [n,d] and i32 ids [n]"},
	{types(mat(9, 6), mat(2, 5), i32(1)), func(g *Graph, p []Value) Value { return g.UpdateRows(p[0], p[1], p[2]) }, "expected a table, rows like its own and one i32 offset"},
	{types(mat(4, 6), mat(6)), func(g *Graph, p []Value) Value { return g.RMSNorm(p[0], p[1], 0) }, "f32[4,6]"},
	{types(mat(4, 6), mat(4)), func(g *Graph, p []Value) Value { return g.RMSNorm(p[0], p[1], 0) }, "RMSNorm[f32[4,6] f32[4]]: expected f32 x [...,d] and w [d]"},
	{types(mat(4, 6), mat(4, 3)), func(g *Graph, p []Value) Value { return g.RoPE(p[0], p[1], 3) }, "expected f32 x [n,heads·3] and table [n,3]"},
	{types(i32(4), mat(3)), func(g *Graph, p []Value) Value { return g.RoPETable(p[0], p[1], 1) }, "f32[4,6]"},
	{types(mat(4), mat(3)), func(g *Graph, p []Value) Value { return g.RoPETable(p[0], p[1], 1) }, "expected i32 positions [n] and f32 frequencies [h]"},
	{types(mat(4, 6)), func(g *Graph, p []Value) Value { return g.Activate(p[0], GELU) }, "f32[4,6]"},
	{types(i32(4)), func(g *Graph, p []Value) Value { return g.Activate(p[0], GELU) }, "expected f32 of one shape"},
	{types(mat(4, 6), mat(4, 5)), func(g *Graph, p []Value) Value { return g.GLU(p[0], p[1], SiLU) }, "expected f32 gate and up of one shape"},
	{types(mat(4, 6), RandomKey), func(g *Graph, p []Value) Value { return g.Dropout(p[0], p[1], DropoutAttr{P: 1}) }, "dropout probability 1, expected 0 ≤ p < 1"},
	{types(mat(4, 6), mat(2, 6), i32(3)), func(g *Graph, p []Value) Value { return g.LoRADown(p[0], p[1], p[2], DropoutAttr{P: 0.1}) }, "expected a key u32[3] or, for each row, u32[4,4], got i32[3]"},
	{types(mat(4, 6), mat(2, 6)), func(g *Graph, p []Value) Value { return g.LoRADown(p[0], p[1], 0, DropoutAttr{P: 0.1}) }, "LoRADown: an input is missing or belongs to another graph"},
	{types(mat(4, 6), i32(5)), func(g *Graph, p []Value) Value { return g.CrossEntropy(p[0], p[1]) }, "expected f32 logits [n,v] and i32 labels [n]"},
	{types(mat(4, 6), mat(9, 5), i32(4)), func(g *Graph, p []Value) Value { return g.LinearCrossEntropy(p[0], p[1], p[2]) }, "expected f32 x [n,d], an F32, BF16, F16 or quantised W [v,d] and i32 labels [n]"},
	{types(mat(4, 6), mat(4, 6), i32(4)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 2, KVHeads: 2, HeadDim: 3})
		return o
	}, "f32[4,6] f32[4,2]"},
	{types(mat(4, 6), mat(4, 6), i32(4)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 2, HeadDim: 2})
		return o
	}, "3 heads, 2 key-value heads, head size 2, window 0"},
	{types(mat(4, 8), mat(4, 6), i32(4)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 2, KVHeads: 2, HeadDim: 3})
		return o
	}, "q f32[4,8], expected f32 [n,6]"},
	{types(mat(4, 6), mat(5, 3), i32(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 2, KVHeads: 1, HeadDim: 3})
		return o
	}, "lo i32[5] and hi i32[5], expected i32 [n]"},
	{types(mat(4, 6), mat(8, 6), i32(4), i32(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 4}, p[3])
		return o
	}, "f32[4,6] f32[4,3]"},
	{types(mat(4, 6), mat(8, 6), i32(4), i32(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 6}, p[3])
		return o
	}, "pages of 6 rows, expected a power of two"},
	{types(mat(4, 6), mat(8, 6), i32(4), i32(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: -2}, p[3])
		return o
	}, "pages of -2 rows, expected a power of two"},
	{types(mat(4, 6), mat(9, 6), i32(4), i32(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 4}, p[3])
		return o
	}, "k f32[9,6] is no whole number of pages of 4 rows"},
	{types(mat(4, 6), mat(8, 6), i32(4), mat(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 4}, p[3])
		return o
	}, "pages f32[5], expected i32 [v]"},
	{types(mat(4, 6), mat(8, 6), i32(4)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 4})
		return o
	}, "got 5 inputs, expected 6"},
	{types(mat(4, 6), mat(8, 6), i32(4), i32(5)), func(g *Graph, p []Value) Value {
		o, _ := g.Attention(p[0], p[1], p[1], p[2], p[2], AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 4, Bias: ScoreBias}, p[3])
		return o
	}, "a bias for keys that lie in pages"},
	{types(mat(4, 6), mat(4, 3), i32(4)), func(g *Graph, p []Value) Value {
		return g.Apply(AttentionGrad, AttentionAttr{Heads: 3, KVHeads: 3, HeadDim: 2, Page: 4}, p[0], p[0], p[0], p[0], p[0], p[1], p[2], p[2])
	}, "keys lie in pages of 4 rows, and have no gradient there"},
	{types(mat(4)), func(g *Graph, p []Value) Value { return g.Out(p[0], 1) }, "Param has 1 outputs, not 2"},
	{types(mat(4)), func(g *Graph, p []Value) Value { return g.Add(p[0], 99) }, "Binary: an input is missing or belongs to another graph"},
	{types(mat(4)), func(g *Graph, _ []Value) Value { return g.Param("p0", mat(5)) }, `param "p0" is declared as f32[4] and as f32[5]`},
	{nil, func(g *Graph, _ []Value) Value { return g.Param("x", Type{}) }, `param "x": no element type`},
	{nil, func(g *Graph, _ []Value) Value { return g.Param("x", mat(1, 2, 3, 4, 5)) }, `param "x": a shape of 5 axes, at most 4`},
	{nil, func(g *Graph, _ []Value) Value { return g.Param("x", nType(tensor.F32, Dim{1, 9})) }, `axis 0 of f32[v9] is bounded by a dimension of another graph`},
	{nil, func(g *Graph, _ []Value) Value { g.Bound("n", 9); return 0 }, `bounded dimension "n" is declared with maxima 8 and 9`},
	{nil, func(g *Graph, _ []Value) Value { g.Bound("k", 0); return 0 }, `bounded dimension "k": maximum 0 is not positive`},
}

var place = regexp.MustCompile(`^rules_test\.go:\d+: graph: `)

func TestRules(t *testing.T) {
	for i, c := range ruleCases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			g := New()
			g.Bound("n", 8)
			g.Bound("m", 5)
			var p []Value
			for i, typ := range c.in {
				p = append(p, g.Param("p"+string(rune('0'+i)), typ))
			}
			require.NoError(t, g.Err())
			v := c.build(g, p)
			if err := g.Err(); err != nil {
				require.ErrorIs(t, err, ErrGraph)
				assert.Regexp(t, place, err.Error(), "the caller's line comes first")
				assert.Contains(t, err.Error(), c.want)
				assert.Zero(t, v)
				return
			}
			got := ""
			for i, o := range g.Node(v).Outs {
				if i > 0 {
					got += " "
				}
				got += o.String()
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestTheFirstErrorIsKept(t *testing.T) {
	g := New()
	x := g.Param("x", mat(4))
	bad := g.Add(x, g.Param("y", mat(5)))
	first := g.Err()
	require.Error(t, first)
	assert.Zero(t, bad)
	assert.Zero(t, g.RMSNorm(bad, bad, 0), "what follows gives nothing")
	assert.Zero(t, g.Softmax(g.Reshape(g.Scale(bad, 2), ShapeOf(2, 2))))
	assert.Zero(t, g.SumTo(bad, ShapeOf(2)))
	g.Fail(errors.New("another"))
	assert.Same(t, first, g.Err())
	_, err := g.Reference([]Value{x}, nil, nil)
	assert.Same(t, first, err)
	grads := g.Gradients(bad, []Value{x}, GradOptions{})
	assert.Equal(t, []Value{0}, grads)
}

func TestShape(t *testing.T) {
	s := Shape{Static(3), {2, 1}, {1, 2}}
	assert.Equal(t, []int{3, 10, 7}, s.Resolve([]int{0, 5, 7}))
	assert.Equal(t, 210, s.Elements([]int{0, 5, 7}))
	typ := Type{tensor.BF16, s}
	assert.Equal(t, 420, typ.Bytes([]int{0, 5, 7}))
	assert.Equal(t, "bf16[3,2*v1,v2]", typ.String())
	assert.Equal(t, Static(1), mat().Last())
	assert.False(t, typ.Equal(Type{tensor.F16, s}))
	assert.True(t, typ.Equal(Type{tensor.BF16, Shape{Static(3), {2, 1}, {1, 2}}}))
}
