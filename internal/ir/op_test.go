package ir

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/tensor"
)

func TestEveryOperationIsDefined(t *testing.T) {
	names := map[string]bool{}
	for _, op := range Ops() {
		d := Def(op)
		assert.NotEmpty(t, d.Name)
		assert.NotEmpty(t, d.Doc, "%v", op)
		assert.False(t, names[d.Name], "two operations are called %s", d.Name)
		names[d.Name] = true
		assert.Equal(t, d.Name, op.String())
		assert.NotNil(t, d.Infer, "%v", op)
		if op.IsComposite() {
			assert.NotNil(t, d.Decompose, "%v", op)
		} else if op != Param && op != Out {
			assert.NotNil(t, d.Reference, "%v", op)
			assert.True(t, d.NoGradient || d.Gradient != nil, "%v has no gradient", op)
		}
	}
	assert.Len(t, names, int(numOps)-1)
	assert.Equal(t, "Op(200)", Op(200).String())
	assert.Panics(t, func() { Def(numOps) })
	assert.False(t, Gemm.IsComposite())
	assert.True(t, RMSNorm.IsComposite())
}

// example is a sound attribute and sound inputs of an operation.
type example struct {
	op   Op
	attr any
	in   []Type
}

func i32(dims ...int) Type { return Type{tensor.I32, ShapeOf(dims...)} }

func examples() []example {
	x, w, key, one := f32(ShapeOf(4, 6)), f32(ShapeOf(5, 6)), RandomKey, f32(ShapeOf())
	head := AttentionAttr{Heads: 2, KVHeads: 1, HeadDim: 3, Scale: 1}
	kv, ends, paged := f32(ShapeOf(7, 3)), i32(4), head
	paged.Page = 2
	return []example{
		{Const, ConstAttr{1, tensor.F32, axesOf(x.Shape)}, nil},
		{Iota, IotaAttr{1, axesOf(x.Shape)}, nil},
		{Philox, PhiloxAttr{1, axesOf(x.Shape)}, []Type{key}},
		{Cast, CastAttr{tensor.BF16}, []Type{x}},
		{Unary, UnaryAttr{Exp}, []Type{x}},
		{Binary, BinaryAttr{Div}, []Type{x, x}},
		{Compare, CompareAttr{Less}, []Type{x, x}},
		{Where, nil, []Type{{tensor.Bool, x.Shape}, x, x}},
		{Reduce, ReduceAttr{ReduceMax, 1}, []Type{x}},
		{ArgMax, nil, []Type{x}},
		{Gemm, GemmAttr{N: 1, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}}, HasBias: true, HasC: true}, []Type{x, w, f32(ShapeOf(5)), f32(ShapeOf(4, 5))}},
		{Gemm, GemmAttr{N: 2, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}, {TB: true, Alpha: 1}}, Float8: 3, Scaled: 2},
			[]Type{x, {tensor.F8E4M3, ShapeOf(5, 6)}, x, {tensor.F8E4M3, ShapeOf(5, 6)}, f32(ShapeOf(5, 1))}},
		{Gemm, GemmAttr{N: 1, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}}, Float8: 1, Scaled: 1, Block: DequantizeAttr{2, 4}},
			[]Type{x, {tensor.F8E4M3, ShapeOf(5, 6)}, f32(ShapeOf(3, 2))}},
		{Dequantize, DequantizeAttr{2, 4}, []Type{{tensor.F8E4M3, ShapeOf(2, 5, 6)}, f32(ShapeOf(2, 3, 2))}},
		{Reshape, ReshapeTo(ShapeOf(24)), []Type{x}},
		{Detach, nil, []Type{x}},
		{Transpose, PermAttr{2, [MaxRank]int{1, 0}}, []Type{x}},
		{Broadcast, ReshapeTo(ShapeOf(2, 4, 6)), []Type{x}},
		{Slice, SliceAttr{1, 2, 5}, []Type{x}},
		{Concat, ConcatAttr{1}, []Type{x, x}},
		{GatherRows, nil, []Type{w, ends}},
		{ScatterAddRows, ScatterAttr{Static(9)}, []Type{x, ends}},
		{UpdateRows, nil, []Type{w, x, i32(1)}},
		{RMSNorm, NormAttr{1e-6}, []Type{x, f32(ShapeOf(6))}},
		{RMSNormGrad, NormAttr{1e-6}, []Type{x, x, f32(ShapeOf(6))}},
		{RowsGemm, RowsGemmAttr{Tables: 2, TB: true, Width: 7, HasScale: true, HasBias: true, HasC: true},
			[]Type{x, ends, f32(ShapeOf(7, 6)), bf16(5, 3), f32(ShapeOf(2)), f32(ShapeOf(2, 7)), f32(ShapeOf(4, 7))}},
		{RowsGemmGrad, RowsGemmAttr{Width: 5, HasScale: true}, []Type{f32(ShapeOf(4, 5)), x, ends, f32(ShapeOf(3, 6, 5)), f32(ShapeOf(3))}},
		{ScatterRows, nil, []Type{f32(ShapeOf(9, 6)), x, ends}},
		{TopK, TopKAttr{2}, []Type{x}},
		{LayerNorm, LayerNormAttr{1e-6, true, true}, []Type{x, f32(ShapeOf(6)), f32(ShapeOf(6))}},
		{LayerNormGrad, LayerNormAttr{1e-6, true, false}, []Type{x, x, f32(ShapeOf(6))}},
		{GroupNorm, GroupNormAttr{3, 1e-6}, []Type{f32(ShapeOf(2, 5, 6)), f32(ShapeOf(6)), f32(ShapeOf(6))}},
		{Conv2D, Conv2DAttr{Stride: 2, Top: 1, Right: 2, HasBias: true}, []Type{f32(ShapeOf(2, 5, 4, 6)), bf16(7, 3, 3, 6), f32(ShapeOf(7))}},
		{Softmax, nil, []Type{x}},
		{RoPETable, RoPETableAttr{1}, []Type{ends, f32(ShapeOf(3))}},
		{RoPE, RoPEAttr{HeadDim: 2}, []Type{x, f32(ShapeOf(4, 2))}},
		{Attention, head, []Type{x, kv, kv, ends, ends}},
		{Attention, paged, []Type{x, f32(ShapeOf(8, 3)), f32(ShapeOf(8, 3)), ends, ends, i32(5)}},
		{SinkAttention, head, []Type{x, kv, kv, ends, ends, f32(ShapeOf(2))}},
		{AttentionGrad, head, []Type{x, x, kv, kv, x, f32(ShapeOf(4, 2)), ends, ends}},
		{GLU, GLUAttr{SiLU}, []Type{x, x}},
		{Activate, ActivateAttr{GELU}, []Type{x}},
		{ActivateGrad, ActivateAttr{GELU}, []Type{x, x}},
		{GLUGrad, GLUAttr{GELU}, []Type{x, x, x}},
		{Dropout, DropoutAttr{P: 0.5}, []Type{x, key}},
		{LoRADown, DropoutAttr{P: 0.5}, []Type{x, w, key}},
		{LoRADownGrad, DropoutAttr{P: 0.5}, []Type{f32(ShapeOf(4, 5)), x, key}},
		{LoRADownInputGrad, DropoutAttr{P: 0.5}, []Type{f32(ShapeOf(4, 3)), f32(ShapeOf(3, 5)), key}},
		{CrossEntropy, nil, []Type{x, ends}},
		{CrossEntropyGrad, nil, []Type{x, ends, one}},
		{LinearCrossEntropy, nil, []Type{x, w, ends}},
		{LinearCrossEntropyGrad, nil, []Type{x, w, ends, one}},
		{SumSquares, nil, []Type{x}},
		{AdamW, AdamWAttr{0.9, 0.99, 1e-8}, []Type{x, x, x, x, AdamWRates, one}},
		{AdamW8, AdamWAttr{0.9, 0.99, 1e-8}, []Type{f32(ShapeOf(3, 100)), {tensor.U8, ShapeOf(3, 100)}, {tensor.U8, ShapeOf(3, 100)}, f32(ShapeOf(2)), f32(ShapeOf(2)), f32(ShapeOf(3, 100)), AdamW8Maps, AdamWRates, one}},
	}
}

func (e example) apply(g *Graph) Value {
	in := make([]Value, len(e.in))
	for i, t := range e.in {
		in[i] = g.Param(string(rune('a'+i)), t)
	}
	return g.Apply(e.op, e.attr, in...)
}

// TestDecompositionsHaveTheTypes requires of each decomposition that it gives
// what the operation gives, out of operations that come before it or are
// composites themselves.
func TestDecompositionsHaveTheTypes(t *testing.T) {
	covered := map[Op]bool{Param: true, Out: true}
	for _, e := range examples() {
		covered[e.op] = true
		g := New()
		v := e.apply(g)
		require.NoError(t, g.Err())
		flops, bytes := Cost(e.op, e.attr, e.in, g.Node(v).Outs, []int{0})
		require.Positive(t, bytes, "%v", e.op)
		require.Positive(t, flops, "%v", e.op)
		if !e.op.IsComposite() {
			continue
		}
		outs := Def(e.op).Decompose(g, e.attr, g.Node(v).In)
		require.NoError(t, g.Err(), "%v", e.op)
		require.Len(t, outs, len(g.Node(v).Outs), "%v", e.op)
		for i, o := range outs {
			require.True(t, g.Type(o).Equal(g.Node(v).Outs[i]), "%v: output %d is %v, expected %v", e.op, i, g.Type(o), g.Node(v).Outs[i])
		}
	}
	for _, op := range Ops() {
		assert.True(t, covered[op], "no example of %v", op)
	}
}

// TestInferNeverPanics calls every rule with any number of inputs of any type.
func TestInferNeverPanics(t *testing.T) {
	all := examples()
	dtypes := []tensor.DType{tensor.F32, tensor.I32, tensor.U32, tensor.Bool, tensor.BF16, tensor.F64}
	rapid.Check(t, func(r *rapid.T) {
		e := all[rapid.IntRange(0, len(all)-1).Draw(r, "operation")]
		g := New()
		n := g.Bound("n", 3)
		inputs := len(e.in)
		if rapid.IntRange(0, 3).Draw(r, "another number") == 0 {
			inputs = rapid.IntRange(0, 9).Draw(r, "inputs")
		}
		in := make([]Value, inputs)
		from, to := rapid.SampledFrom([]int{1, 3, 4, 5, 6}).Draw(r, "from"), rapid.SampledFrom([]Dim{Static(0), Static(2), {6, n.Var}, n}).Draw(r, "to")
		for i := range in {
			typ := Type{DType: tensor.F32}
			if i < len(e.in) {
				typ = e.in[i]
			}
			// One size becomes another in all inputs, which often still fits.
			typ.Shape = slices.Clone(typ.Shape)
			for j, d := range typ.Shape {
				if d == Static(from) {
					typ.Shape[j] = to
				}
			}
			if rapid.IntRange(0, 7).Draw(r, "other type") == 0 {
				typ = Type{DType: rapid.SampledFrom(dtypes).Draw(r, "dtype")}
				for range rapid.IntRange(0, MaxRank).Draw(r, "rank") {
					typ.Shape = append(typ.Shape, rapid.SampledFrom([]Dim{Static(0), Static(1), Static(4), Static(6), n}).Draw(r, "axis"))
				}
			}
			in[i] = g.Param(string(rune('a'+i)), typ)
		}
		v := g.Apply(e.op, e.attr, in...)
		if (v == 0) != (g.Err() != nil) {
			r.Fatalf("%v gives %d and the error %v", e.op, v, g.Err())
		}
		if v != 0 && e.op.IsComposite() {
			Def(e.op).Decompose(g, e.attr, in)
			if err := g.Err(); err != nil {
				r.Fatalf("%v is accepted, its decomposition is not: %v", e.op, err)
			}
		}
	})
}
