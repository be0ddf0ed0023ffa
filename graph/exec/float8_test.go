package exec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestFloat8 requires weights in 8-bit floats to be widened for devices whose products do not read them.
func TestFloat8(t *testing.T) {
	weight := func(g *ir.Graph) ir.Value {
		return g.Param("w", ir.Type{DType: tensor.F8E4M3, Shape: ir.ShapeOf(5, 6)})
	}
	rows := func(g *ir.Graph) ir.Value { return g.Mul(g.Cast(weight(g), tensor.F32), g.Param("scale", f32(5, 1))) }
	blocks := func(g *ir.Graph) ir.Value {
		return g.Dequantize(weight(g), g.Param("scale", f32(3, 2)), ir.DequantizeAttr{Rows: 2, Columns: 4})
	}
	build := func(w func(g *ir.Graph) ir.Value) (*ir.Graph, exec.Spec) {
		g := ir.New()
		return g, results(g.Linear(g.Param("x", f32(3, 6)), w(g), 0))
	}
	ops := func(p *ir.Program) (ops []ir.Op) {
		for _, l := range p.Launches {
			ops = append(ops, l.Op)
		}
		return ops
	}
	for _, c := range []struct {
		weight func(g *ir.Graph) ir.Value
		text   string
		wide   []ir.Op
	}{{rows, "Gemm{NT·scale}", []ir.Op{ir.Cast, ir.Binary, ir.Gemm}}, {blocks, "Gemm{NT·scale2×4}", []ir.Op{ir.Dequantize, ir.Gemm}}} {
		g, spec := build(c.weight)
		p := plan(t, g, spec)
		require.Equal(t, []ir.Op{ir.Gemm}, ops(p))
		require.Zero(t, p.Arena)
		require.Equal(t, tensor.F8E4M3, p.Launches[0].In[1].Type.DType)
		require.Contains(t, p.String(), c.text)

		g, spec = build(c.weight)
		p, err := exec.Plan(g, spec, device(t).Supports)
		require.NoError(t, err)
		require.Equal(t, c.wide, ops(p))
	}

	g := ir.New()
	x := g.Param("x", f32(3, 6))
	p := plan(t, g, results(g.Gemm([]ir.Product{{A: x, B: rows(g), TB: true, Alpha: 1}, {A: x, B: g.Dequantize(weight(g), g.Param("scales", f32(3, 2)), ir.DequantizeAttr{Rows: 2, Columns: 4}), TB: true, Alpha: 1}}, 0, 0)))
	require.Equal(t, []ir.Op{ir.Dequantize, ir.Gemm}, ops(p))
	require.Contains(t, p.String(), "Gemm{NT·scale NT}")
}
