package inspect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestPacked: elements that share bytes are told apart.
func TestPacked(t *testing.T) {
	v := only(t, safetensors.F4, 6, []byte{0x70, 0xf2, 0x98})
	assert.EqualValues(t, "-6", v.Min)
	assert.EqualValues(t, "6", v.Max)
	assert.EqualValues(t, 2, v.Zero)
	assert.InDelta(t, (6+1-6-0.5)/6, v.Mean, 1e-15)

	v = only(t, safetensors.F6E2M3, 4, []byte{0x88, 0x07, 0x82}) // 8, 30, 32, 32: 1, 7, -0, -0
	assert.EqualValues(t, []int64{4, 2}, []int64{v.Elements, v.Zero})
	assert.EqualValues(t, "0", v.Min)
	assert.EqualValues(t, "7", v.Max)

	for _, c := range []struct {
		a, b safetensors.Entry
		want Difference
	}{
		{entry(safetensors.F4, []byte{0x21, 0x07}, 4), entry(safetensors.F32, le[float32](0.5, 1, 6, 1), 4), Difference{1, 1, 1. / 6, []int{3}, "0", "1"}},
		{entry(safetensors.F6E3M2, []byte{0xcc, 0, 0}, 4), entry(safetensors.F6E3M2, []byte{0x0c, 0, 0}, 4), Difference{1, 0.1875, 0.1875, []int{1}, "0.1875", "0"}},
	} {
		got, err := difference(t, c.a, c.b)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
}
