//go:build cuda && linux

package cuda_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/shim"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// Without a driver the backend is not there, and says where it looked.
func TestNoDriver(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	if !alone(t, shim.EnvLibrary+"="+missing) {
		return
	}
	_, err := cuda.Open(backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	var e *shim.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Tried, 1)
	_, err = backend.Devices(backend.CUDA)
	require.ErrorContains(t, err, "backend cuda: backend unavailable: no CUDA driver: "+e.Tried[0].Path)
	require.ErrorContains(t, err, "cannot open shared object file")

	dev, err := backend.Open(backend.Auto, backend.Options{})
	require.NoError(t, err)
	require.Equal(t, backend.CPU, dev.Info().Backend)
	require.ErrorContains(t, backend.SkipReason(backend.CPU), "no CUDA driver")
	require.NoError(t, dev.Close())
}

func TestNoDevice(t *testing.T) {
	if !onSimulator(t, "LFSIM_NO_DEVICE=1") {
		return
	}
	_, err := cuda.Open(backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "CUDA_ERROR_NO_DEVICE")
}

func TestTooOld(t *testing.T) {
	if !onSimulator(t, "LFSIM_CC=7.5") {
		return
	}
	_, err := cuda.Open(backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "compute capability 7.5, expected 8.0 or newer")
}

// Several devices are listed, and work side by side.
func TestDevices(t *testing.T) {
	if !onSimulator(t, "LFSIM_DEVICES=3", "LFSIM_CC=9.0") {
		return
	}
	infos, err := cuda.Devices()
	require.NoError(t, err)
	require.Len(t, infos, 3)
	for i, info := range infos {
		require.Equal(t, i, info.Index)
		require.NotEmpty(t, info.Name)
		require.Positive(t, info.Memory)
		require.Regexp(t, `^compute capability 9\.0, \d+ multiprocessors, driver \d+\.\d+$`, info.Detail)
	}
	for _, i := range []int{3, -1} {
		_, err = cuda.Open(backend.Options{Index: i})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, fmt.Sprintf("device %d; there are 3", i))
	}
	var devs []*cuda.Device
	for i := range infos {
		dev, err := cuda.Open(backend.Options{Index: i})
		require.NoError(t, err)
		defer dev.Close()
		info := dev.Info()
		require.Positive(t, info.Rated.FlopsPerSecond, "at the precision that it is opened with")
		require.True(t, info.Replays, "it is open")
		info.Rated, info.Replays = backend.Peak{}, false
		require.Equal(t, infos[i], info)
		devs = append(devs, dev)
	}
	b, err := devs[1].Alloc(8)
	require.NoError(t, err)
	_, err = devs[2].Upload(b, 0, []byte{1})
	require.ErrorContains(t, err, "a buffer of another device")
	for _, dev := range devs {
		require.NoError(t, gputest.Twice(dev))
	}
}

func TestOutOfMemory(t *testing.T) {
	if !onSimulator(t, "LFSIM_MEM=64M") {
		return
	}
	dev, err := cuda.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	_, err = dev.Alloc(100 << 20)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "asked for 100.0 MiB for a buffer, ")
	require.ErrorContains(t, err, " of 64.0 MiB are free on device 0; this process holds nothing")
	for range 10 { // freed memory comes back
		b, err := dev.Alloc(40 << 20)
		require.NoError(t, err)
		_, err = dev.Upload(b, 0, make([]byte, 3<<20)) // still under way
		require.NoError(t, err)
		b.Free()
	}
	w, err := dev.Import(weights.Data{Bytes: make([]byte, 30<<20)})
	require.NoError(t, err)
	_, err = dev.Compile(&ir.Program{Bounds: make([]ir.Bound, 1), Arena: 50 << 20})
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "asked for 50.0 MiB for the arena of a program of 0 launches, ")
	require.ErrorContains(t, err, "this process holds 30.0 MiB imported weights")
	_, err = dev.Import(weights.Data{Bytes: make([]byte, 40<<20)})
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	w.Free()
	require.NoError(t, gputest.Twice(dev), "the device lives on")
	require.Zero(t, dev.Held())
}

// Whatever allocation fails, the error says so, nothing leaks, and what comes
// next works.
func TestFailedAllocations(t *testing.T) {
	for _, kind := range []string{"alloc", "hostalloc", "graph", "module"} {
		for n := 1; n <= 6; n++ {
			t.Run(fmt.Sprint(kind, n), func(t *testing.T) {
				if !onSimulator(t, fmt.Sprintf("LFSIM_FAIL=%s:%d", kind, n)) {
					return
				}
				failures := 0
				for range 3 {
					dev, err := cuda.Open(backend.Options{})
					if err == nil {
						err = gputest.Twice(dev)
						require.NoError(t, dev.Close())
					}
					if err != nil {
						failures++
						require.Condition(t, func() bool {
							return strings.Contains(err.Error(), "out of memory") || strings.Contains(err.Error(), "OUT_OF_MEMORY") || strings.Contains(err.Error(), "INVALID_IMAGE")
						}, "%v", err)
					}
				}
				require.LessOrEqual(t, failures, 1, "one call fails, no more")
			})
		}
	}
}

// A device that fails says so from then on; the process lives, and closes it.
func TestLost(t *testing.T) {
	for _, fail := range []string{"launch:unary_neg_f32:1", "launch:binary_add_f32:3", "lost:4", "copy:1"} {
		t.Run(fail, func(t *testing.T) {
			// A context that has failed frees nothing: its memory goes with it.
			if !onSimulator(t, "LFSIM_FAIL="+fail, "LFSIM_LEAKS=0") {
				return
			}
			dev, err := cuda.Open(backend.Options{})
			require.NoError(t, err)
			require.ErrorIs(t, gputest.Twice(dev), backend.ErrLost)
			require.ErrorIs(t, gputest.Twice(dev), backend.ErrLost, "and it stays so")
			_, err = dev.Alloc(8)
			require.ErrorIs(t, err, backend.ErrLost)
			require.NoError(t, dev.Close())
		})
	}
}
