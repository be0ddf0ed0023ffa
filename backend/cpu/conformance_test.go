package cpu_test

import (
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/internal/ir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open() (backend.Device, error) { return cpu.Open(backend.Options{}) }

func TestConformance(t *testing.T) { conformance.RunAll(t, open) }

func TestRounded(t *testing.T) {
	conformance.RunRounded(t, func() (backend.Device, error) { return cpu.Open(backend.Options{Precision: backend.BF16}) })
}

// TestStored: values of f32 that lie in bfloat16, by the fastest instructions, and by
// the fastest of those that do not round operands of products.
func TestStored(t *testing.T) {
	tried := map[bool]bool{}
	for _, isa := range slices.Backward(gemm.Supported()) {
		rounds := rounds(isa)
		if tried[rounds] {
			continue
		}
		tried[rounds] = true
		t.Run(isa.String(), func(t *testing.T) {
			t.Setenv(gemm.EnvCPU, isa.String())
			conformance.RunStored(t, func() (backend.Device, error) {
				return cpu.Open(backend.Options{Threads: 2, Precision: backend.BF16})
			}, rounds, ir.RMSNorm, ir.RMSNormGrad, ir.RoPE, ir.GLU, ir.GLUGrad, ir.Unary, ir.Binary, ir.Gemm, ir.Slice, ir.Concat, ir.GatherRows,
				ir.UpdateRows, ir.ScatterRows, ir.Dropout, ir.LoRADown, ir.LoRADownGrad, ir.LoRADownInputGrad, ir.LinearCrossEntropy, ir.LinearCrossEntropyGrad,
				ir.Attention, ir.AttentionGrad)
		})
	}
}

// rounds reports whether products of an instruction set round their operands at
// precision bf16.
func rounds(isa gemm.ISA) bool {
	p := pool.New(1)
	defer p.Close()
	e := gemm.NewISA(p, isa)
	e.SetPrecision(gemm.BF16)
	return e.Rounds()
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
