package conformance

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Open opens a device for the suite, which closes it.
type Open func() (backend.Device, error)

// RunAll runs every mode, or only some, on the device that open returns.
func RunAll(t *testing.T, open Open, only ...string) {
	modes := []struct {
		name string
		run  func(t *testing.T, dev backend.Device)
	}{
		{"device", runDevice}, {"contents", runContents}, {"empty", runEmpty}, {"finite", runFinite}, {"apart", runApart}, {"company", runRowsCompany}, {"value", runValue}, {"grad", runGrad}, {"composite", runComposite},
		{"fuse", runFuse}, {"together", runTogether}, {"adapters", runAdapters}, {"fold", runFold}, {"plan", runPlan}, {"chaos", runChaos},
	}
	for _, m := range modes {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) { m.run(t, opened(t, open)) })
	}
}

func opened(t testing.TB, open Open) backend.Device {
	t.Helper()
	dev, err := open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// eachCase runs f for all cases except benchmarks.
func eachCase(t *testing.T, f func(t *testing.T, c *testCase)) {
	for _, c := range cases() {
		if !c.bench {
			t.Run(c.String(), func(t *testing.T) { f(t, &c) })
		}
	}
}

// slowCases are the cases that take most of the time on simulated devices. Without LORAFUSE_LONG only the value, grad
// and threads modes run them, and the value mode does so in poisoned memory.
var slowCases = []string{
	"AdamW8/clipped", "AdamW8/infinite", "AdamW8/long", "Attention/pages of tiles", "Attention/relative bias", "Attention/soft cap of tiles",
	"Attention/tiles", "Attention/tiles of both sides", "AttentionGrad/relative bias", "AttentionGrad/soft cap of tiles", "AttentionGrad/tiles",
	"AttentionGrad/tiles of both sides", "Conv2D/many channels", "Conv2D/picture", "Conv2D/tiles", "Conv2D/tiles, bf16", "Conv2D/tiles, bounded",
	"Conv2D/tiles, far", "Conv2D/tiles, inside", "Conv2D/tiles, wide", "Gemm/NT large", "GroupNorm/large", "LoRADown/many channels",
	"LoRADownGrad/many columns", "LoRADownGrad/rows many", "LoRADownInputGrad/many rows", "LoRADownInputGrad/rows many",
}

// leftOut reports whether eachQuick skips the case.
func (c *testCase) leftOut() bool {
	return os.Getenv("LORAFUSE_LONG") == "" && slices.Contains(slowCases, c.String())
}

// eachQuick runs f for all cases except benchmarks and, unless LORAFUSE_LONG is set, slow cases.
func eachQuick(t *testing.T, f func(t *testing.T, c *testCase)) {
	eachCase(t, func(t *testing.T, c *testCase) {
		if c.leftOut() {
			t.Skip("LORAFUSE_LONG=1 runs it")
		}
		f(t, c)
	})
}

func runValue(t *testing.T, dev backend.Device) {
	wild := Chaos(shared{dev}, 1)
	t.Cleanup(func() { require.NoError(t, wild.Close()) })
	eachCase(t, func(t *testing.T, c *testCase) {
		s, on := c.set(t), dev
		if c.leftOut() {
			on = wild
		}
		s.compare(t, s.run(t, on, s.outs, exec.Spec{}), s.outs, s.reference(t, s.outs), c.tolerance())
	})
}

// runPlan compares reused memory with separate memory for every value. The operation is placed between others, so that
// its inputs and outputs are in the arena and it may work in place.
func runPlan(t *testing.T, dev backend.Device) {
	eachQuick(t, func(t *testing.T, c *testCase) {
		s := c.amidst(t)
		want := s.run(t, dev, s.outs, exec.Spec{NoReuse: true})
		got := s.run(t, dev, s.outs, exec.Spec{})
		for i := range want {
			require.True(t, bytes.Equal(want[i], got[i]), "output %d differs when memory is reused", i)
		}
	})
}

// amidst builds the scene so that float inputs are computed, and float outputs read, by other operations.
func (c *testCase) amidst(t testing.TB) *scene {
	t.Helper()
	s := c.params(t)
	in := append([]ir.Value(nil), s.in...)
	for i, v := range in {
		if c.in[i].typ[:4] == "f32[" {
			in[i] = s.g.Unary(ir.Neg, s.g.Unary(ir.Neg, v))
		}
	}
	for _, v := range c.build(s.g, in) {
		if s.g.Type(v).DType.String() == "F32" {
			v = s.g.Unary(ir.Neg, v)
		}
		s.outs = append(s.outs, v)
	}
	require.NoError(t, s.g.Err())
	return s
}

// RunThreads requires the device to compute the same bytes with any number of workers.
func RunThreads(t *testing.T, open func(threads int) (backend.Device, error)) {
	counts := []int{1, 2, 3, 7}
	devices := make([]backend.Device, len(counts))
	for i, n := range counts {
		devices[i] = opened(t, func() (backend.Device, error) { return open(n) })
	}
	eachCase(t, func(t *testing.T, c *testCase) {
		s := c.set(t)
		outs := append(s.outs, s.gradients(t)...)
		want := s.run(t, devices[0], outs, exec.Spec{})
		for i, dev := range devices[1:] {
			got := s.run(t, dev, outs, exec.Spec{})
			for j := range want {
				require.True(t, bytes.Equal(want[j], got[j]), "output %d differs between 1 and %d threads", j, counts[i+1])
			}
		}
	})
}

// RunRounded runs the modes that apply to a device whose products round their operands to bfloat16. Values must be
// within the error of that rounding. The bits must be the same under memory reuse and chaos.
func RunRounded(t *testing.T, open Open) {
	t.Run("value", func(t *testing.T) {
		dev := opened(t, open)
		eachCase(t, func(t *testing.T, c *testCase) { c.compareRounded(t, dev) })
	})
	t.Run("company", func(t *testing.T) { runRowsCompany(t, opened(t, open)) })
	t.Run("plan", func(t *testing.T) { runPlan(t, opened(t, open)) })
	t.Run("together", func(t *testing.T) { runTogether(t, opened(t, open)) })
	t.Run("adapters", func(t *testing.T) { runAdapters(t, opened(t, open)) })
	t.Run("chaos", func(t *testing.T) { runChaos(t, opened(t, open)) })
	t.Run("peak", func(t *testing.T) { testPeak(t, opened(t, open)) })
}

// RunLarge compares the values of the benchmark cases with products, whose sizes reach kernels for many rows, with the
// error that rounding operands to bfloat16 leaves, and again with the values stored as bfloat16 that the device stores.
func RunLarge(t *testing.T, open Open) {
	dev := opened(t, open)
	each := func(t *testing.T, f func(t *testing.T, c *testCase)) {
		for _, c := range cases() {
			products := slices.Contains([]ir.Op{ir.Gemm, ir.LinearCrossEntropy, ir.LinearCrossEntropyGrad}, c.op) || strings.HasPrefix(c.name, "bench/products")
			if c.bench && products {
				t.Run(c.String(), func(t *testing.T) { f(t, &c) })
			}
		}
	}
	t.Run("value", func(t *testing.T) {
		each(t, func(t *testing.T, c *testCase) { c.compareRounded(t, dev) })
	})
	t.Run("stored", func(t *testing.T) {
		spec := exec.Spec{Store: tensor.BF16, Stores: dev.Stores, StoreAll: true}
		each(t, func(t *testing.T, c *testCase) { c.testStored(t, dev, spec, true, map[ir.Op]bool{}) })
	})
}

// compareRounded compares the values of a case on a device whose products round their operands to bfloat16.
func (c *testCase) compareRounded(t *testing.T, dev backend.Device) {
	s, limit := c.set(t), roundedLimit
	if c.op == ir.Attention || c.op == ir.SinkAttention || c.op == ir.AttentionGrad {
		limit = roundedScores
	}
	s.compare(t, s.run(t, dev, s.outs, exec.Spec{}), s.outs, s.reference(t, s.outs), max(limit, c.tolerance()))
}

// Errors are relative to the largest element: half a unit of the 8 bits of bfloat16 for each operand, most of which
// average out in a sum. Attention scores are rounded in absolute terms before the softmax makes them ratios.
const (
	roundedLimit  = 0.015
	roundedScores = 0.05
)
