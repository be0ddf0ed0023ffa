package cpu_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/ir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open() (backend.Device, error) { return cpu.Open(backend.Options{}) }

func TestConformance(t *testing.T) { conformance.RunAll(t, open) }

func TestRounded(t *testing.T) {
	conformance.RunRounded(t, func() (backend.Device, error) { return cpu.Open(backend.Options{Precision: backend.BF16}) })
}

// TestStored: values of f32 that lie in bfloat16.
func TestStored(t *testing.T) {
	conformance.RunStored(t, func() (backend.Device, error) {
		return cpu.Open(backend.Options{Threads: 2, Precision: backend.BF16})
	}, ir.RMSNorm, ir.RMSNormGrad, ir.RoPE, ir.GLU, ir.GLUGrad, ir.Unary, ir.Binary, ir.Gemm, ir.Slice, ir.Concat, ir.GatherRows, ir.UpdateRows,
		ir.Dropout, ir.LoRADown, ir.LoRADownGrad, ir.LoRADownInputGrad, ir.LinearCrossEntropy, ir.LinearCrossEntropyGrad,
		ir.Attention, ir.AttentionGrad)
}

func TestThreads(t *testing.T) {
	conformance.RunThreads(t, func(threads int) (backend.Device, error) {
		return cpu.Open(backend.Options{Threads: threads})
	})
}

func BenchmarkDevice(b *testing.B) { conformance.RunBenchmarks(b, open) }

// TestAllocations: with workers that share the tasks, and alone.
func TestAllocations(t *testing.T) {
	for _, threads := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			conformance.RunAllocs(t, func() (backend.Device, error) { return cpu.Open(backend.Options{Threads: threads}) })
		})
	}
}
