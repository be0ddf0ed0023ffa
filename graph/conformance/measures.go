package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// testPeak checks that the peak rates that a device measures are plausible for a simulated or a real machine. A wrong
// unit is not.
func testPeak(t *testing.T, dev backend.Device) {
	d, ok := dev.(backend.Meter)
	if !ok {
		t.Skip("the device does not measure its peak")
	}
	p, err := d.Peak()
	require.NoError(t, err)
	for name, rate := range map[string]float64{"flops": p.FlopsPerSecond, "bytes": p.BytesPerSecond, "copies": p.CopiedPerSecond} {
		if name == "copies" && rate == 0 {
			continue // device and host share memory
		}
		assert.Greater(t, rate, 1e6, name)
		assert.Less(t, rate, 1e17, name)
	}
}

// testRead checks that buffers of every size can be read, and that freed ones cannot.
func testRead(t *testing.T, dev backend.Device) {
	d, ok := dev.(backend.Meter)
	if !ok {
		t.Skip("the device reads nothing but what programs do")
	}
	var buffers []backend.Buffer
	for _, n := range []int{0, 1, 4, 16, 4096 + 5, 1 << 20, 3<<20 + 6} {
		b, err := dev.Alloc(n)
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
