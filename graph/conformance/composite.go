package conformance

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// primitive is a device that claims no composite.
type primitive struct{ backend.Device }

// Supports returns false.
func (primitive) Supports(ir.Op, any, []ir.Type) bool { return false }

// decomposedLimit multiplies the tolerance for decompositions, because they round more often.
const decomposedLimit = 4

// runComposite compares the kernels of composites with their decompositions on the same device, and both with the
// reference, for values and gradients.
func runComposite(t *testing.T, dev backend.Device) {
	eachQuick(t, func(t *testing.T, c *testCase) {
		if !c.op.IsComposite() {
			t.Skip("a primitive")
		}
		s := c.set(t)
		outs := append(s.outs, s.gradients(t)...)
		want := s.reference(t, outs)
		limit := gradLimit * decomposedLimit * c.tolerance()
		decomposed := s.run(t, primitive{dev}, outs, exec.Spec{})
		s.compare(t, decomposed, outs, want, limit)
		own := s.run(t, dev, outs, exec.Spec{})
		for i, v := range outs {
			want[i] = hostOf(s.g.Type(v), s.dims, decomposed[i])
		}
		s.compare(t, own, outs, want, limit)
	})
}
