package gpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/kernels"
)

// checkMetal is check for a kernel of Metal, which takes pointers before numbers.
func (l *launched) checkMetal(s kernels.Signature) error {
	var pointers, numbers []Arg
	for _, a := range l.args {
		if a.Kind == PointerKind {
			pointers = append(pointers, a)
		} else {
			numbers = append(numbers, a)
		}
	}
	if len(pointers) > 30 {
		return fmt.Errorf("%s: %d pointers, and the numbers are a buffer too: a kernel of Metal has 31", l.Name, len(pointers))
	}
	sorted := *l
	sorted.args = append(pointers, numbers...)
	return sorted.check(s)
}

// metalTargets are Apple GPUs in both precisions, with tables and without.
func metalTargets() (list []Target) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		for _, tables := range []bool{true, false} {
			target := MetalTarget(precision, 1024)
			target.Tables = tables
			list = append(list, target)
		}
	}
	return list
}

// TestMetalArguments: what is planned for Apple GPUs hands each kernel what its source
// declares, for every case of the conformance suite and more, and there is no kernel
// that nothing launches.
func TestMetalArguments(t *testing.T) {
	declared, err := kernels.MetalSignatures(kernels.Metal())
	require.NoError(t, err)
	used := map[string]bool{}
	missing := map[string]bool{}
	for _, target := range metalTargets() {
		for _, p := range planned(t, target.Precision) {
			plan, err := New(p.Program, target)
			require.NoError(t, err, p.Name)
			one := make([]int, len(p.Dims))
			for i := range one {
				one[i] = 1
			}
			for _, dims := range [][]int{p.Dims, p.MaxDims(), one} {
				for _, behind := range []Pointer{0, 4} {
					for _, l := range fill(plan, len(p.Args), dims, behind) {
						s, ok := declared[l.Name]
						if !ok {
							missing[l.File+".metal: "+l.Name] = true
							continue
						}
						require.NoError(t, l.checkMetal(s), p.Name)
						used[l.Name] = true
					}
				}
			}
		}
	}
	for name := range missing {
		assert.Fail(t, "there is no kernel", name)
	}
	for name := range declared {
		assert.True(t, used[name] || unplanned.MatchString(name), "nothing launches %s", name)
	}
}
