package exec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestFloat8 requires weights in 8-bit floats to be cast for devices whose products do not read them.
func TestFloat8(t *testing.T) {
	build := func() (*ir.Graph, exec.Spec) {
		g := ir.New()
		w := g.Mul(g.Cast(g.Param("w", ir.Type{DType: tensor.F8E4M3, Shape: ir.ShapeOf(5, 6)}), tensor.F32), g.Param("scale", f32(5, 1)))
		return g, results(g.Linear(g.Param("x", f32(3, 6)), w, 0))
	}
	ops := func(p *ir.Program) (ops []ir.Op) {
		for _, l := range p.Launches {
			ops = append(ops, l.Op)
		}
		return ops
	}
	g, spec := build()
	p := plan(t, g, spec)
	require.Equal(t, []ir.Op{ir.Gemm}, ops(p))
	require.Zero(t, p.Arena)
	require.Equal(t, tensor.F8E4M3, p.Launches[0].In[1].Type.DType)
	require.Contains(t, p.String(), "Gemm{NT·scale}")

	g, spec = build()
	p, err := exec.Plan(g, spec, device(t).Supports)
	require.NoError(t, err)
	require.Equal(t, []ir.Op{ir.Cast, ir.Binary, ir.Gemm}, ops(p))
}
