//go:build cuda && linux

package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

// faulty opens a device in a process of its own.
func faulty(t *testing.T, way backend.LoadMode) *cuda.Device {
	dev, err := cuda.Open(backend.Options{Load: way})
	require.NoError(t, err)
	dev.LoadSizes(64<<10, 128<<10, 128<<10, 64<<10)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// named makes a name of a test out of a setting: one that an expression finds.
func named(setting string) string { return strings.ReplaceAll(setting, "+", " and on") }

// Where nothing can be registered, register fails, and auto takes the ring and
// says why; whichever window it is.
func TestRegistrationFails(t *testing.T) {
	for _, fail := range []string{"LFSIM_FAIL=register:1", "LFSIM_FAIL=register:3", "LFSIM_FAIL=register:2+", "LFSIM_NO_READ_ONLY_REGISTER=1"} {
		t.Run(named(fail), func(t *testing.T) {
			if !onSimulator(t, fail) {
				return
			}
			views := viewsOf(t, written(t, fileOf(700000, 300001, 500, 900000)))
			dev := faulty(t, backend.LoadRegister)
			_, err := dev.Load(t.Context(), asStored(views))
			require.ErrorIs(t, err, backend.ErrLoad)
			require.ErrorContains(t, err, "cannot load weights by register: the mapping cannot be registered: ")
			require.ErrorContains(t, err, "model.safetensors: CUDA_ERROR_")
			require.Zero(t, dev.Held())
			require.NoError(t, gputest.Twice(dev), "the device lives on")
		})
	}
}

func TestAutoFallsBack(t *testing.T) {
	for fail, why := range map[string]string{
		"LFSIM_FAIL=register:1":            `^the first 128.0 KiB: ring \S+ GB/s, register: the mapping cannot be registered: `,
		"LFSIM_FAIL=register:2+":           `ring`, // the trial went well, or was slower
		"LFSIM_NO_READ_ONLY_REGISTER=1":    `^the device cannot pin memory that is only read, .*attributes 113 and 100 are 0`,
		"LFSIM_FAIL=hostalloc:5+":          `out of memory: pinned memory`,
		"LFSIM_FAIL=hostalloc:6+":          `^the first 128.0 KiB`, // a ring of one slot
		"LFSIM_PINNED=8519680":             `^the first 128.0 KiB`, // two slots more than the device's own four
		"LFSIM_FAIL=register:1,register:2": `register: the mapping cannot be registered`,
	} {
		t.Run(named(fail), func(t *testing.T) {
			if !onSimulator(t, fail) {
				return
			}
			views := viewsOf(t, written(t, fileOf(700000, 300001, 500, 900000)))
			dev := faulty(t, backend.LoadAuto)
			buffers, err := dev.Load(t.Context(), asStored(views))
			require.NoError(t, err)
			same(t, dev, views, buffers)
			require.Regexp(t, why, dev.Loaded().Why)
			if fail == "LFSIM_FAIL=hostalloc:5+" {
				require.Equal(t, backend.LoadPlain, dev.Loaded().Mode)
			}
		})
	}
}

// Whatever fails in the middle, the error has its kind, and nothing is left.
func TestLoadFails(t *testing.T) {
	for _, way := range ways {
		for _, fail := range []string{"copy:1", "copy:4", "copy:7"} {
			t.Run(fmt.Sprint(way, fail), func(t *testing.T) {
				// A context that has failed frees nothing: its memory goes with it.
				if !onSimulator(t, "LFSIM_FAIL="+fail, "LFSIM_LEAKS=0") {
					return
				}
				views := viewsOf(t, written(t, fileOf(700000, 300001, 500, 900000, 3, 4, 5, 1<<20)))
				dev := faulty(t, way)
				_, err := dev.Load(t.Context(), asStored(views))
				require.ErrorIs(t, err, backend.ErrLost)
				_, err = dev.Load(t.Context(), asStored(views))
				require.ErrorIs(t, err, backend.ErrLost, "and it stays so")
			})
		}
	}
	t.Run("memory", func(t *testing.T) {
		if !onSimulator(t, "LFSIM_MEM=8M") {
			return
		}
		dev := faulty(t, backend.LoadRing)
		_, err := dev.Load(t.Context(), asStored(viewsOf(t, written(t, fileOf(5<<20, 5<<20)))))
		require.ErrorIs(t, err, backend.ErrOutOfMemory)
		require.ErrorContains(t, err, "asked for 10.0 MiB for 2 imported weights")
	})
	t.Run("pinned", func(t *testing.T) {
		if !onSimulator(t, "LFSIM_FAIL=hostalloc:5") {
			return
		}
		dev := faulty(t, backend.LoadRing)
		views := viewsOf(t, written(t, fileOf(1<<20)))
		_, err := dev.Load(t.Context(), asStored(views))
		require.ErrorIs(t, err, backend.ErrOutOfMemory)
		require.Zero(t, dev.Held())
		buffers, err := dev.Load(t.Context(), asStored(views))
		require.NoError(t, err, "the next time there is")
		same(t, dev, views, buffers)
	})
}
