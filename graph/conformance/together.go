package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// runTogether checks products that share their x: a program of all of them, in which a device may compute several at
// once, gives each the bits that it has in a program of its own. The last output is a gate, so that a device can leave
// it out if nothing else reads it.
func runTogether(t *testing.T, dev backend.Device) {
	for _, n := range []int{1, 2, 3, 8, 9, 17, 33} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := (&testCase{bounds: fmt.Sprintf("n=%d/40", n), in: layerInputs(), build: layer}).set(t)
			all := s.run(t, dev, s.outs, exec.Spec{})
			s.compare(t, all, s.outs, s.reference(t, s.outs), 2*roundedLimit) // a GLU multiplies two of them
			require.Equal(t, all[:5], s.run(t, dev, s.outs[:5], exec.Spec{}), "without the gate")
			for i := range s.outs {
				require.Equal(t, all[i], s.run(t, dev, s.outs[i:i+1], exec.Spec{})[0], "output %d", i)
			}
		})
	}
}

// layerInputs are x, the weights of its norm, and W, A, B and the bias of the products of layer.
func layerInputs() []input {
	in := []input{arg("f32[n,1280]", normal), arg("bf16[1280]", normal)}
	for _, cols := range []int{48, 21, 24, 70, 70, 130, 130} {
		in = append(in, arg(fmt.Sprintf("bf16[%d,1280]", cols), normal), arg("f32[5,1280]", normal), arg(fmt.Sprintf("f32[%d,5]", cols), normal), arg(fmt.Sprintf("f32[%d]", cols), normal))
	}
	return in
}

// layer returns products of a layer: q, k and v, which has a bias, share their input, as do gate and up of two GLUs. The
// last output is the first gate. Only the products before the first up have adapters.
func layer(g *ir.Graph, in []ir.Value) []ir.Value {
	x := g.RMSNorm(in[0], g.Cast(in[1], tensor.F32), 1e-6)
	var y []ir.Value
	for i := 2; i < len(in); i += 4 {
		w, a, b, bias := in[i], in[i+1], in[i+2], ir.Value(0)
		if len(y) == 2 {
			bias = in[i+3]
		}
		if len(y) == 3 || len(y) == 5 {
			x = g.Unary(ir.Neg, x)
		}
		p := g.Linear(x, w, bias)
		if len(y) < 4 {
			p = g.Add(p, g.Scale(g.Linear(g.Linear(x, a, 0), b, 0), 0.5))
		}
		y = append(y, p)
	}
	return []ir.Value{y[0], y[1], y[2], g.GLU(y[3], y[4], ir.SiLU), g.GLU(y[5], y[6], ir.GELU), y[3]}
}
