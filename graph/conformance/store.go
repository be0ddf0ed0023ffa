package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// RunStored runs the cases with all inputs and outputs in bfloat16 that the device can store as such (Device.Stores).
// It requires the reference result for the rounded inputs, rounded once, or within the error of rounded products if
// rounds is set. So must the results be if only some inputs or only the outputs are stored so. Results must be the same
// bits under memory reuse and chaos. At least the operations in want must be covered.
func RunStored(t *testing.T, open Open, rounds bool, want ...ir.Op) {
	dev := opened(t, open)
	spec := exec.Spec{Store: tensor.BF16, Stores: dev.Stores, StoreAll: true}
	done := map[ir.Op]bool{}
	t.Run("value", func(t *testing.T) {
		eachCase(t, func(t *testing.T, c *testCase) { c.testStored(t, dev, spec, rounds, done) })
	})
	for _, op := range want {
		require.True(t, done[op], "no case of %v has a value that is stored", op)
	}
	for _, m := range mixes {
		mixed := spec
		mixed.Stores = m.of(dev.Stores)
		t.Run(m.name, func(t *testing.T) {
			eachQuick(t, func(t *testing.T, c *testCase) { c.testStored(t, dev, mixed, rounds, map[ir.Op]bool{}) })
		})
	}
	t.Run("plan", func(t *testing.T) {
		eachCase(t, func(t *testing.T, c *testCase) {
			s, apart := c.amidst(t), spec
			apart.NoReuse = true
			requireSameBytes(t, s.run(t, dev, s.outs, apart), s.run(t, dev, s.outs, spec))
		})
	})
	t.Run("chaos", func(t *testing.T) {
		wild := Chaos(shared{dev}, 1)
		t.Cleanup(func() { require.NoError(t, wild.Close()) })
		eachCase(t, func(t *testing.T, c *testCase) {
			s := c.amidst(t)
			requireSameBytes(t, s.run(t, dev, s.outs, spec), s.run(t, wild, s.outs, spec))
		})
	})
}

// products are the operations whose multiplications may round operands.
var products = []ir.Op{
	ir.Gemm, ir.RowsGemm, ir.RowsGemmGrad, ir.LoRADown, ir.LoRADownGrad, ir.LoRADownInputGrad, ir.Conv2D, ir.Attention, ir.AttentionGrad,
	ir.LinearCrossEntropy, ir.LinearCrossEntropyGrad,
}

// mix selects some of the operands that a device can store in bfloat16.
type mix struct {
	name  string
	takes func(at ir.Place) bool
}

var mixes = []mix{
	{"inputs", func(at ir.Place) bool { return !at.Out }},
	{"outputs", func(at ir.Place) bool { return at.Out }},
	{"odd inputs", func(at ir.Place) bool { return !at.Out && at.Index%2 == 1 }},
}

func (m mix) of(s exec.Stores) exec.Stores {
	return func(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool {
		return m.takes(at) && s(op, attr, in, at, as)
	}
}

func requireSameBytes(t *testing.T, want, got [][]byte) {
	t.Helper()
	for i := range want {
		require.True(t, bytes.Equal(want[i], got[i]), "output %d differs", i)
	}
}

// testStored compares one case, and records its operation in done if any of its values is stored.
func (c *testCase) testStored(t *testing.T, dev backend.Device, spec exec.Spec, rounds bool, done map[ir.Op]bool) {
	s := c.set(t)
	for i, v := range s.outs {
		spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
	}
	prog, err := exec.Plan(s.g, spec, dev.Supports)
	require.NoError(t, err)
	if _, ok := prog.Narrowed(); !ok {
		return
	}
	done[c.op] = true
	for _, a := range prog.Args {
		if h := s.hosts[a.Name]; h != nil && a.Store != tensor.Invalid {
			roundTo(a.Store, h.Data)
		}
	}
	e, err := exec.Load(prog, dev, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	buffers := s.bind(t, dev, e)
	defer free(buffers)
	require.NoError(t, e.RunWait(context.Background()))
	limit := c.tolerance()
	if rounds && slices.Contains(products, c.op) || len(prog.Launches) > 1 { // intermediate values were rounded too
		limit = max(limit, roundedLimit)
		if c.op == ir.AttentionGrad || c.op == ir.SinkAttention || rounds && c.op == ir.Attention {
			limit = roundedScores
		}
		if c.op == ir.AttentionGrad && !slices.ContainsFunc(prog.Launches, func(l ir.Launch) bool { return l.Op == c.op }) {
			limit = 2 * roundedScores // scores, their gradients and all that lies between are rounded
		}
	}
	want := s.reference(t, s.outs)
	for i, v := range s.outs {
		j := prog.ArgIndex(fmt.Sprintf("out%d", i))
		a := prog.Args[j]
		got := make([]byte, a.Bytes(s.dims))
		download(t, dev, got, buffers[j])
		x := decode(a.Stored(), got)
		if !s.g.Type(v).DType.IsFloat() {
			if len(prog.Launches) > 1 {
				continue // a code may be the next one, since intermediate values were rounded
			}
			require.Equal(t, want[i].Data, x, "output %d", i)
			continue
		}
		requireRounded(t, want[i].Data, x, a, limit)
	}
}

// requireRounded requires got to equal want within limit, after rounding to the stored type of a.
func requireRounded(t *testing.T, want, got []float64, a ir.Arg, limit float64) {
	t.Helper()
	require.Len(t, got, len(want))
	half := 0.0
	if a.Store == tensor.BF16 {
		half = 0x1p-8 // relative to the number, if it is a power of two
	}
	sum := 0.0
	for _, w := range want {
		if finite(w) {
			sum += w * w
		}
	}
	rms := math.Sqrt(sum / float64(max(1, len(want))))
	for i, w := range want {
		if !finite(w) || !finite(got[i]) {
			require.Equal(t, fmt.Sprint(w), fmt.Sprint(got[i]), "%s: element %d", a.Name, i)
			continue
		}
		require.LessOrEqual(t, math.Abs(got[i]-w), half*math.Abs(w)+limit*(math.Abs(w)+rms), "%s: element %d is %v, expected %v", a.Name, i, got[i], w)
	}
}
