//go:build cuda && linux

package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// The peaks are of the order that a machine has, the simulated one or a real
// one; a wrong unit is not. Nothing is left of the measurement.
func TestPeak(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		d := opened(t, backend.Options{Precision: precision})
		p, err := d.Peak()
		require.NoError(t, err)
		for name, rate := range map[string]float64{"flops": p.FlopsPerSecond, "bytes": p.BytesPerSecond, "copies": p.CopiedPerSecond} {
			assert.Greater(t, rate, 1e6, name)
			assert.Less(t, rate, 1e17, name)
		}
		assert.Zero(t, d.Held())
	}
}

// Reading takes buffers of every size, and none that was freed.
func TestRead(t *testing.T) {
	d := opened(t, backend.Options{})
	var buffers []backend.Buffer
	for _, n := range []int{0, 1, 16, 4096 + 5, 1 << 20} {
		b, err := d.Alloc(n)
		require.NoError(t, err)
		buffers = append(buffers, b)
	}
	require.NoError(t, d.Read(buffers))
	require.NoError(t, d.Read(nil))
	for _, b := range buffers {
		b.Free()
	}
	require.ErrorIs(t, d.Read(buffers), backend.ErrClosed)
}
