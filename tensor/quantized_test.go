package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		d    DType
		n    int
		want int
	}{
		{F32, 7, 28}, {BF16, 3, 6}, {F64, 5, 40}, {Invalid, 9, 0},
		{Q8, 0, 0}, {Q8, 1, 68}, {Q8, 64, 68}, {Q8, 65, 136}, {NF4, 128, 72}, {FP4, 129, 108},
	} {
		require.Equal(t, c.want, c.d.Bytes(c.n), "%d of %v", c.n, c.d)
	}
}

// Blocks are memory to this package, no numbers.
func TestQuantizedTypes(t *testing.T) {
	for _, d := range []DType{Q8, NF4, FP4} {
		require.True(t, d.Quantized())
		require.Zero(t, d.Bits()+d.Size())
		require.False(t, d.IsFloat() || d.isInteger())
		x, err := New(d, 3, 64)
		require.NoError(t, err)
		require.Len(t, x.Data, 3*d.BlockBytes())
		require.NoError(t, x.Check())
		_, err = x.Float32s()
		require.ErrorIs(t, err, ErrDType)
		_, err = View[uint8](x)
		require.ErrorIs(t, err, ErrDType)
		parsed, err := ParseDType(d.String())
		require.NoError(t, err)
		require.Equal(t, d, parsed)
	}
	require.False(t, F32.Quantized() || Bool.Quantized() || DType(200).Quantized())
}
