package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Program is a case of the tables, planned for a device.
type Program struct {
	Name string
	*ir.Program
	Dims []int // run-time values of the bounded dimensions
}

// Programs returns all cases with their gradients, including benchmarks, planned for a device that runs the composites
// for which supports returns true. It is for tests of code that analyses programs.
func Programs(t testing.TB, supports exec.Supports) (list []Program) {
	t.Helper()
	for _, c := range cases() {
		s := c.set(t)
		outs := s.outs
		if !c.bench {
			outs = append(outs, s.gradients(t)...)
		}
		var spec exec.Spec
		for i, v := range outs {
			spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
		}
		p, err := exec.Plan(s.g, spec, supports)
		require.NoError(t, err, "%v", &c)
		list = append(list, Program{c.String(), p, s.dims})
	}
	return list
}
