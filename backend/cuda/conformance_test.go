//go:build cuda && linux

package cuda_test

import (
	"os"
	osexec "os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open() (backend.Device, error) { return cuda.Open(backend.Options{}) }

func TestConformance(t *testing.T) {
	simtest.Need(t)
	conformance.RunAll(t, open)
}

// long are tests that only some runs have the time for.
func long(t *testing.T) {
	if os.Getenv("LORAFUSE_LONG") != "1" {
		t.Skip("LORAFUSE_LONG=1 runs it")
	}
}

// TestLaunchByLaunch: what runs as a CUDA graph runs without one too.
func TestLaunchByLaunch(t *testing.T) {
	simtest.Need(t)
	long(t)
	t.Setenv(cuda.EnvGraph, "0")
	conformance.RunAll(t, open, "device", "value", "plan")
}

// TestOrders: no result depends on the order in which the threads of a block, or
// independent streams, run.
func TestOrders(t *testing.T) {
	simtest.Need(t)
	long(t)
	for _, env := range []string{"LFSIM_ORDER=reverse", "LFSIM_ORDER=random", "LFSIM_STREAMS=lazy", "LFSIM_THREADS=1"} {
		t.Run(env, func(t *testing.T) {
			if onSimulator(t, env) {
				conformance.RunAll(t, open, "device", "value", "grad", "fold")
			}
		})
	}
}

// TestRounded: precision bf16 is within what its rounding costs.
func TestRounded(t *testing.T) { testRounded(t, conformance.RunRounded) }

// TestStored: values of f32 that are stored as bf16.
func TestStored(t *testing.T) {
	simtest.Need(t)
	conformance.RunStored(t, func() (backend.Device, error) { return cuda.Open(backend.Options{Precision: backend.BF16}) }, true, gputest.Stored...)
}

// TestLarge: so are products of many rows.
func TestLarge(t *testing.T) { testRounded(t, conformance.RunLarge) }

func testRounded(t *testing.T, run func(*testing.T, conformance.Open)) {
	simtest.Need(t)
	long(t)
	var devices []*cuda.Device
	run(t, func() (backend.Device, error) {
		dev, err := cuda.Open(backend.Options{Precision: backend.BF16})
		if err == nil {
			devices = append(devices, dev)
		}
		return dev, err
	})
	for _, dev := range devices {
		t.Log("kernels:", dev.Kernels()) // what a sanitizer has watched
	}
}

// TestAllocations: a run leaves no garbage, as a graph and launch by launch.
func TestAllocations(t *testing.T) {
	simtest.Need(t)
	long(t)
	for _, graphs := range []string{"1", "0"} {
		t.Run("graphs "+graphs, func(t *testing.T) {
			t.Setenv(cuda.EnvGraph, graphs)
			conformance.RunAllocs(t, open)
		})
	}
}

// TestAllocationsOfRun is the short form of TestAllocations.
func TestAllocationsOfRun(t *testing.T) {
	for _, graphs := range []string{"1", "0"} {
		t.Setenv(cuda.EnvGraph, graphs)
		e := gputest.Scaled(t, opened(t, backend.Options{}))
		require.Zero(t, testing.AllocsPerRun(50, func() { require.NoError(t, e.RunWait(t.Context())) }))
		require.Zero(t, testing.AllocsPerRun(50, func() {
			_, err := e.Run(t.Context())
			require.NoError(t, err)
		}), "runs that nobody waits for")
	}
}

// TestLinked: the program with everything in it needs no driver to be linked
// or to start.
func TestLinked(t *testing.T) {
	if _, err := osexec.LookPath("nm"); err != nil {
		t.Skip("needs nm")
	}
	for _, args := range [][]string{{"-D", "--undefined-only", os.Args[0]}, {"--undefined-only", os.Args[0]}} {
		out, err := osexec.Command("nm", args...).Output()
		require.NoError(t, err)
		require.NotRegexp(t, `(?m)^\s+U cu[A-Z]`, string(out))
	}
}

func BenchmarkDevice(b *testing.B) {
	simtest.Need(b)
	conformance.RunBenchmarks(b, open)
}
