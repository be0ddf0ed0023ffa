package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestStartFromAdapters: layers of several adapters start from the products with A and B, if nothing else reads the
// results of these.
func TestStartFromAdapters(t *testing.T) {
	layer := func(b *builder, x ir.Value, more func(h, y ir.Value) []ir.Value) []ir.Value {
		rows := b.Type(x).Shape[0].N
		index := b.param(tensor.I32, rows)
		h := b.RowsGemm(ir.RowsProduct{X: x, Index: index, Weights: []ir.Value{b.param(tensor.F32, 4, 64), b.param(tensor.F32, 8, 64)}, TB: true})
		y := b.Linear(x, b.param(tensor.BF16, 64, 64), 0)
		y = b.RowsGemm(ir.RowsProduct{X: h, Index: index, Weights: []ir.Value{b.param(tensor.F32, 64, 4), b.param(tensor.F32, 64, 8)}, TB: true, C: y})
		return more(h, y)
	}
	for _, c := range []struct {
		name  string
		build func(b *builder) exec.Spec
		want  []ir.Op
	}{
		{"sum", func(b *builder) exec.Spec {
			x := b.Unary(ir.Neg, b.param(tensor.F32, 20, 64))
			return results(layer(b, x, func(_, y ir.Value) []ir.Value { return []ir.Value{b.Add(y, x)} })...)
		}, []ir.Op{ir.Unary, ir.RowsGemm, ir.RowsGemm, ir.Gemm}},
		{"two of one input", func(b *builder) exec.Spec {
			x := b.Unary(ir.Neg, b.param(tensor.F32, 20, 64))
			negative := func(_, y ir.Value) []ir.Value { return []ir.Value{b.Unary(ir.Neg, y)} }
			return results(append(layer(b, x, negative), layer(b, x, negative)...)...)
		}, []ir.Op{ir.Unary, ir.RowsGemm, ir.RowsGemm, ir.RowsGemm, ir.RowsGemm, ir.Gemm, ir.Gemm, ir.Unary, ir.Unary}},
		{"sum with a later value", func(b *builder) exec.Spec {
			x := b.Unary(ir.Neg, b.param(tensor.F32, 20, 64))
			return results(layer(b, x, func(_, y ir.Value) []ir.Value { return []ir.Value{b.Add(y, b.Unary(ir.Exp, b.Unary(ir.Tanh, x)))} })...)
		}, []ir.Op{ir.Unary, ir.RowsGemm, ir.RowsGemm, ir.Gemm, ir.Unary, ir.Unary, ir.Binary}},
		{"h is read again", func(b *builder) exec.Spec {
			x := b.Unary(ir.Neg, b.param(tensor.F32, 20, 64))
			return results(layer(b, x, func(h, y ir.Value) []ir.Value { return []ir.Value{b.Unary(ir.Neg, y), b.Unary(ir.Neg, h)} })...)
		}, []ir.Op{ir.Unary, ir.RowsGemm, ir.Unary, ir.Gemm, ir.RowsGemm, ir.Unary}},
		{"too many rows", func(b *builder) exec.Spec {
			x := b.Unary(ir.Neg, b.param(tensor.F32, 600000, 64))
			return results(layer(b, x, func(_, y ir.Value) []ir.Value { return []ir.Value{b.Unary(ir.Neg, y)} })...)
		}, []ir.Op{ir.Unary, ir.RowsGemm, ir.Gemm, ir.RowsGemm, ir.Unary}},
	} {
		p := program(t, c.name, c.build)
		plan, err := New(p.Program, Target{Precision: backend.BF16, Limits: h100, Sizes: DefaultSizes()})
		require.NoError(t, err, c.name)
		var ops []ir.Op
		for i := range plan.Len() {
			ops = append(ops, plan.Op(i))
		}
		require.Equal(t, c.want, ops, "%s: %v", c.name, p.Program)
	}
}

// TestHeldPrecision: the product with B, which the Gemm adds, is stored as bfloat16 under bf16 only.
func TestHeldPrecision(t *testing.T) {
	p := program(t, "layer", func(b *builder) exec.Spec {
		x, index := b.param(tensor.F32, 20, 512), b.param(tensor.I32, 20)
		h := b.RowsGemm(ir.RowsProduct{X: x, Index: index, Weights: []ir.Value{b.param(tensor.F32, 4, 512)}, TB: true})
		y := b.Linear(x, b.param(tensor.BF16, 512, 512), 0)
		return results(b.Unary(ir.Neg, b.RowsGemm(ir.RowsProduct{X: h, Index: index, Weights: []ir.Value{b.param(tensor.F32, 512, 4)}, TB: true, C: y})))
	})
	for _, target := range metalTargets() {
		want := tensor.F32
		if target.Precision == backend.BF16 && target.Tables {
			want = tensor.BF16
		}
		plan, err := New(p.Program, target)
		require.NoError(t, err)
		up := plan.prog.Launches[1]
		require.Equal(t, ir.RowsGemm, up.Op)
		require.Equal(t, want, up.Out[0].Stored(), "%v, tables %t", target.Precision, target.Tables)
	}
}
