package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// TestGradients compares the gradients of the reference with finite differences. Devices are compared with the
// reference.
func TestGradients(t *testing.T) {
	eachQuick(t, func(t *testing.T, c *testCase) {
		s := c.set(t)
		loss, grads := s.lossAndGradients(t)
		if loss == 0 {
			return
		}
		for i, grad := range s.reference(t, grads) {
			s.checkDifferences(t, loss, s.wanted()[i], grad)
		}
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
	x := s.hosts[fmt.Sprintf("in%d", at)].Data
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
