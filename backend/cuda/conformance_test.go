//go:build cuda && linux

package cuda_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/backendtest"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open() (backend.Device, error) { return cuda.Open(backend.Options{}) }

func TestConformance(t *testing.T) {
	simtest.Need(t)
	backendtest.RunAll(t, open)
}

// TestLaunchByLaunch: what runs as a CUDA graph runs without one too.
func TestLaunchByLaunch(t *testing.T) {
	simtest.Need(t)
	if os.Getenv("LORAFUSE_LONG") != "1" {
		t.Skip("LORAFUSE_LONG=1 runs it")
	}
	t.Setenv(cuda.EnvGraph, "0")
	backendtest.RunAll(t, open)
}

// TestAllocations: a run leaves no garbage, as a graph and launch by launch.
func TestAllocations(t *testing.T) {
	simtest.Need(t)
	for _, graphs := range []string{"1", "0"} {
		t.Run("graphs "+graphs, func(t *testing.T) {
			t.Setenv(cuda.EnvGraph, graphs)
			backendtest.RunAllocs(t, open)
		})
	}
}

func BenchmarkDevice(b *testing.B) {
	simtest.Need(b)
	backendtest.RunBenchmarks(b, open)
}
