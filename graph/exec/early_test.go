package exec_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Gradients added to sums at the end of a program must not keep intermediate values of the backward pass alive, so the
// sums are computed next to their gradients.
func TestGradientSumsComeEarly(t *testing.T) {
	const layers, hidden, inner, rows = 12, 32, 128, 64
	arena := func(checkpoint, sum bool) int {
		g := graph.New()
		x := g.Param("x", tensor.F32, ir.Static(rows), ir.Static(hidden))
		var ws []graph.Tensor
		for i := range layers {
			g.SetSegment(i + 1)
			up := g.Param(fmt.Sprintf("up%d", i), tensor.F32, ir.Static(inner), ir.Static(hidden))
			down := g.Param(fmt.Sprintf("down%d", i), tensor.F32, ir.Static(hidden), ir.Static(inner))
			h := x.MatMulT(up)
			x = h.GLU(h, ir.SiLU).MatMulT(down).Add(x)
			ws = append(ws, up, down)
		}
		g.SetSegment(0)
		grads := g.Gradients(x.SumSquares(), ws, checkpoint)
		p := g.Program()
		for i, w := range ws {
			name := fmt.Sprintf("sum%d", i)
			if sum {
				p.Update(name, g.Param(name, tensor.F32, w.Type().Shape...).Add(grads[i]))
			} else {
				p.Result(name, grads[i])
			}
		}
		prog, err := p.Plan(func(ir.Op, any, []ir.Type) bool { return true })
		require.NoError(t, err)
		return prog.Arena
	}
	for _, checkpoint := range []bool{false, true} {
		require.LessOrEqual(t, arena(checkpoint, true), arena(checkpoint, false)*11/10, "checkpoint %v", checkpoint)
	}
	require.Less(t, arena(true, true), arena(false, true)/3)
}
