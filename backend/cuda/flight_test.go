//go:build cuda && linux

package cuda_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

func TestFlights(t *testing.T) {
	for _, mode := range []string{"1", "0"} {
		t.Setenv(cuda.EnvGraph, mode)
		dev := opened(t, backend.Options{})
		gputest.Flights(t, dev, unseen(t, dev))
	}
}

// unseen is Unseen of a device.
func unseen(t *testing.T, dev *cuda.Device) func(f func()) {
	return func(f func()) {
		t.Helper()
		require.NoError(t, dev.Unseen(f))
	}
}

func TestYields(t *testing.T) {
	dev := opened(t, backend.Options{})
	gputest.Yields(t, dev, unseen(t, dev))
}

func TestTraps(t *testing.T) {
	dev := opened(t, backend.Options{})
	gputest.Traps(t, dev, unseen(t, dev))
}

func TestFreedUnderWay(t *testing.T) { gputest.FreedUnderWay(t, opened(t, backend.Options{})) }

// TestLostUnderWay: where the device fails, the runs that are under way end, and say
// so.
func TestLostUnderWay(t *testing.T) {
	// A context that has failed frees nothing: its memory goes with it.
	if !onSimulator(t, "LFSIM_FAIL=lost:4", "LFSIM_LEAKS=0") {
		return
	}
	dev, err := cuda.Open(backend.Options{})
	require.NoError(t, err)
	e := gputest.Scaled(t, dev) // two launches
	var fences []backend.Fence
	for range backend.MaxInFlight {
		f, err := e.Run(context.Background())
		require.NoError(t, err)
		fences = append(fences, f)
	}
	for i, f := range fences {
		if err := f.Wait(context.Background()); i > 0 {
			require.ErrorIs(t, err, backend.ErrLost, "run %d", i)
		}
	}
	require.ErrorIs(t, e.RunWait(context.Background()), backend.ErrLost)
	require.NoError(t, dev.Close())
}

func TestClosedUnderWay(t *testing.T) {
	simtest.Need(t)
	dev, err := cuda.Open(backend.Options{})
	require.NoError(t, err)
	gputest.ClosedUnderWay(t, dev)
}
