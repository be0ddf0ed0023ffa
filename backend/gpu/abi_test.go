package gpu

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/kernels"
	"github.com/lorafuse/lorafuse/tensor"
)

// signatures are the kernels as their sources declare them.
func signatures(t testing.TB) map[string]kernels.Signature {
	t.Helper()
	all, err := kernels.Signatures(os.DirFS("../../kernels"))
	require.NoError(t, err)
	return all
}

// launched is a kernel with the arguments that a run gives it.
type launched struct {
	*Kernel
	args []Arg
}

// fill runs a plan on addresses that are aligned to 256 bytes, but for those of the
// arguments, which lie so many bytes behind. It gives what is launched.
func fill(p *Plan, args int, dims []int, behind Pointer) (list []launched) {
	p.Bind(make([]Launch, len(p.Kernels)))
	r := &Run{Arena: 1 << 40, Scratch: 2 << 40, Trap: 3 << 40, Dims: dims}
	for i := range args {
		r.Args = append(r.Args, Pointer(4+i)<<40+behind)
	}
	all := make([]launched, len(p.Kernels))
	for i, k := range p.Kernels {
		all[i].Kernel = k
		k.record = func(a Arg) { all[i].args = append(all[i].args, a) }
	}
	for i := range p.Len() {
		p.Fill(i, r)
	}
	for _, k := range p.Kernels {
		k.record = nil
	}
	return slices.DeleteFunc(all, func(l launched) bool { return l.Launch.Grid[0] == 0 })
}

// check says what of a launch is not as the kernel's source declares it.
func (l *launched) check(s kernels.Signature) error {
	if l.File != s.File {
		return fmt.Errorf("%s: is in file %s, looked for in %s", l.Name, s.File, l.File)
	}
	if n := l.Launch.Block[0] * l.Launch.Block[1] * l.Launch.Block[2]; s.Threads > 0 && int(n) > s.Threads {
		return fmt.Errorf("%s: blocks of %d threads, the kernel takes %d", l.Name, n, s.Threads)
	}
	if int(l.Launch.Count) != len(l.args) || len(l.args) != len(s.Params) {
		return fmt.Errorf("%s: %d arguments, the kernel takes %d", l.Name, len(l.args), len(s.Params))
	}
	for i, p := range s.Params {
		if a := l.args[i]; a.Kind.String() != p.Type || a.Name != p.Name {
			return fmt.Errorf("%s: argument %d is %v %s, the kernel takes %s %s", l.Name, i, a.Kind, a.Name, p.Type, p.Name)
		}
	}
	return nil
}

// planned returns every case of the conformance suite and the variants, also with values stored as bf16 if the
// precision is that of devices that store them so.
func planned(t *testing.T, precision backend.Precision) []conformance.Program {
	list := append(conformance.Programs(t, Supports), variants(t)...)
	if precision != backend.BF16 {
		return list
	}
	stores := func(op ir.Op, attr any, in []ir.Type, at ir.Place, _ tensor.DType) bool {
		return Stores(op, attr, in, at)
	}
	return append(list, conformance.StoredPrograms(t, Supports, stores)...)
}

// unplanned are kernels that no program launches, with the reason.
var unplanned = regexp.MustCompile(`^(peak|probe|quantize)_`) // measured, tested and loaded with

// TestArguments: what is planned for every case of the conformance suite, and for
// more programs where those leave variants out, hands each kernel the arguments
// that its source declares, in number, order, type and name; and there is no kernel
// that nothing launches.
func TestArguments(t *testing.T) {
	declared, used := signatures(t), map[string]bool{}
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		for _, p := range planned(t, precision) {
			plan, err := New(p.Program, Target{Precision: precision, Sizes: DefaultSizes()})
			require.NoError(t, err, p.Name)
			one := make([]int, len(p.Dims))
			for i := range one {
				one[i] = 1
			}
			for _, dims := range [][]int{p.Dims, p.MaxDims(), one} {
				for _, behind := range []Pointer{0, 4} {
					for _, l := range fill(plan, len(p.Args), dims, behind) {
						s, ok := declared[l.Name]
						require.True(t, ok, "%s: there is no kernel %s", p.Name, l.Name)
						require.NoError(t, l.check(s), p.Name)
						used[l.Name] = true
					}
				}
			}
		}
	}
	for name := range declared {
		assert.True(t, used[name] || unplanned.MatchString(name), "nothing launches %s", name)
	}
}

// TestQuantizers: so do the kernels that make blocks of weights.
func TestQuantizers(t *testing.T) {
	declared := signatures(t)
	for _, to := range Quantizes {
		for _, from := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
			require.True(t, backend.Info{Quantizes: Quantizes}.Converts(from, to))
			l := launched{Kernel: NewQuantizer(from, to)}
			l.record = func(a Arg) { l.args = append(l.args, a) }
			l.Quantize(&Launch{}, 1<<40, 2<<40, 640, 3<<40, 7)
			require.NoError(t, l.check(declared[l.Name]))
			require.Equal(t, [3]uint32{2, 1, 1}, l.Launch.Grid)
		}
	}
	require.Nil(t, NewQuantizer(tensor.I8, tensor.Q8))
}
