package conformance

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
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

// runGrad compares the gradients of the reference with finite differences, and the gradients of the device with the
// reference.
func runGrad(t *testing.T, dev backend.Device) {
	eachCase(t, func(t *testing.T, c *testCase) {
		s := c.set(t)
		loss, grads := s.lossAndGradients(t)
		if loss == 0 {
			return
		}
		want := s.reference(t, grads)
		for i, at := range s.wanted() {
			s.checkDifferences(t, loss, at, want[i])
		}
		s.compare(t, s.run(t, dev, grads, exec.Spec{}), grads, want, gradLimit*c.tolerance())
	})
}

// checkDifferences compares grad, for input number at, with central differences of the reference: for some elements
// (more with LORAFUSE_LONG), and along a random direction through all of them.
func (s *scene) checkDifferences(t testing.TB, loss ir.Value, at int, grad *ir.Host) {
	t.Helper()
	const step = 1e-5
	most := 3
	if os.Getenv("LORAFUSE_LONG") != "" {
		most = 12
	}
	x := s.hosts["in"+string(rune('0'+at))].Data
	require.Len(t, grad.Data, len(x))
	lossAlong := func(move func(sign float64)) float64 {
		move(1)
		up := s.reference(t, []ir.Value{loss})[0].Data[0]
		move(-1)
		move(-1)
		down := s.reference(t, []ir.Value{loss})[0].Data[0]
		move(1)
		return (up - down) / (2 * step)
	}
	r := rand.New(rand.NewPCG(uint64(at), 5))
	elements := r.Perm(len(x))
	saved, scale := slices.Clone(x), 0.0
	for _, g := range grad.Data {
		scale += g * g
	}
	scale = math.Sqrt(scale / float64(len(x)))
	for _, i := range elements[:min(most, len(elements))] {
		got := lossAlong(func(sign float64) { x[i] += sign * step })
		copy(x, saved)
		require.InDelta(t, got, grad.Data[i], 1e-5*(math.Abs(got)+scale)+1e-9, "gradient of input %d at %d", at, i)
	}
	direction := normal(r, []int{len(x)})
	want := 0.0
	for i, d := range direction {
		want += d * grad.Data[i]
	}
	got := lossAlong(func(sign float64) {
		for i, d := range direction {
			x[i] += sign * step * d
		}
	})
	copy(x, saved)
	require.InDelta(t, want, got, 1e-5*scale*math.Sqrt(float64(len(x)))+1e-8, "gradient of input %d along a direction", at)
}
