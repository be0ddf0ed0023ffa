package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
)

// The peak is of the order that any machine has; a wrong unit is not.
func TestPeak(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		d, err := cpu.Open(backend.Options{Threads: 1, Precision: precision})
		require.NoError(t, err)
		p, err := d.Peak()
		require.NoError(t, err)
		assert.Greater(t, p.FlopsPerSecond, 1e8)
		assert.Less(t, p.FlopsPerSecond, 1e13)
		assert.Greater(t, p.BytesPerSecond, 1e8)
		assert.Less(t, p.BytesPerSecond, 1e13)
		require.NoError(t, d.Close())
	}
}
