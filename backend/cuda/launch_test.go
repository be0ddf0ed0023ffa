//go:build cuda && linux

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Kernels are found by file and name, and may ask for more shared memory than
// they have without asking.
func TestKernels(t *testing.T) {
	simtest.Need(t)
	dev, err := Open(backend.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	require.NoError(t, dev.Do(func() error {
		f, err := dev.images.function("philox", "philox_u32")
		require.NoError(t, err)
		require.NoError(t, driver.SetMaxShared(f, 96<<10))
		require.Error(t, driver.SetMaxShared(f, 1<<30))
		_, err = dev.images.function("philox", "nothing")
		require.ErrorIs(t, err, backend.ErrUnsupported)
		require.ErrorContains(t, err, "file philox of package kernels has no kernel nothing")
		_, err = dev.images.function("nowhere", "nothing")
		require.ErrorIs(t, err, backend.ErrUnsupported)
		return nil
	}))
	n, err := dev.Scratch(&ir.Program{Bounds: make([]ir.Bound, 1)})
	require.NoError(t, err)
	require.Zero(t, n)
}
