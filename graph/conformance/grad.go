package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// gradLimit multiplies the tolerance for gradients, because they have longer sums and more cancellation than values.
const gradLimit = 4

// weighted appends the scalar Σ wᵢ·outᵢ with random weights: a loss to which every element of every output contributes
// differently.
func (s *scene) weighted(t testing.TB) ir.Value {
	t.Helper()
	g, loss := s.g, ir.Value(0)
	outs := s.outs
	if s.lossOuts > 0 {
		outs = outs[:s.lossOuts]
	}
	r := rand.New(rand.NewPCG(7, 11))
	for i, v := range outs {
		typ := g.Type(v)
		if typ.DType != tensor.F32 {
			continue
		}
		name := "weight" + string(rune('0'+i))
		h := ir.NewHost(typ, s.dims)
		copy(h.Data, normal(r, h.Shape))
		roundTo(typ.DType, h.Data)
		s.hosts[name] = h
		sum := g.Mul(v, g.Param(name, typ))
		for sum != 0 && g.Type(sum).Rank() > 0 {
			sum = g.Reduce(ir.ReduceSum, sum, g.Type(sum).Rank()-1)
		}
		if loss == 0 {
			loss = sum
		} else {
			loss = g.Add(loss, sum)
		}
	}
	require.NoError(t, g.Err())
	return loss
}

// wanted returns the indices of the inputs that are differentiated.
func (s *scene) wanted() []int {
	if ir.Def(s.op).NoGradient && s.op != ir.Param {
		return nil
	}
	var is []int
	for i, in := range s.testCase.in {
		if !in.frozen && wants(s.g.Type(s.in[i])) {
			is = append(is, i)
		}
	}
	return is
}

// gradients appends the gradients of the weighted sum of the outputs.
func (s *scene) gradients(t testing.TB) []ir.Value {
	t.Helper()
	_, grads := s.lossAndGradients(t)
	return grads
}

func (s *scene) lossAndGradients(t testing.TB) (ir.Value, []ir.Value) {
	t.Helper()
	is := s.wanted()
	if len(is) == 0 {
		return 0, nil
	}
	loss := s.weighted(t)
	if loss == 0 {
		return 0, nil
	}
	var wrt []ir.Value
	for _, i := range is {
		wrt = append(wrt, s.in[i])
	}
	grads := s.g.Gradients(loss, wrt, ir.GradOptions{})
	require.NoError(t, s.g.Err())
	return loss, grads
}

// runGrad compares the gradients of the device with the gradients of the reference. The tests of this package compare
// those with finite differences.
func runGrad(t *testing.T, dev backend.Device) {
	eachCase(t, func(t *testing.T, c *testCase) {
		s := c.set(t)
		loss, grads := s.lossAndGradients(t)
		if loss == 0 {
			return
		}
		s.compare(t, s.run(t, dev, grads, exec.Spec{}), grads, s.reference(t, grads), gradLimit*c.tolerance())
	})
}
