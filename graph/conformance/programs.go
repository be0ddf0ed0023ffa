package conformance

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
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

// StoredPrograms returns all cases, without benchmarks, planned like Programs with values in bfloat16 as RunStored runs
// them.
func StoredPrograms(t testing.TB, supports exec.Supports, stores exec.Stores) (list []Program) {
	t.Helper()
	for _, m := range append([]mix{{"stored", func(ir.Place) bool { return true }}}, mixes...) {
		for _, c := range cases() {
			if c.bench {
				continue
			}
			s, spec := c.set(t), exec.Spec{Store: tensor.BF16, Stores: m.of(stores), StoreAll: true}
			for i, v := range s.outs {
				spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
			}
			p, err := exec.Plan(s.g, spec, supports)
			require.NoError(t, err, "%v, %s", &c, m.name)
			list = append(list, Program{c.String() + ", " + m.name, p, s.dims})
		}
	}
	return list
}
