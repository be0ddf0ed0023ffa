package tensor

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var numbers = []DType{Bool, U8, I8, F8E5M2, F8E4M3, I16, U16, F16, BF16, I32, U32, F32, F64, I64, U64}

// bytesFor is the size of n elements.
func bytesFor(n int, d DType) int { return n * d.Size() }

func TestBulkConversionsAgreeWithScalars(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, f := range formats {
			src := append([]byte{0}, codes(f.d)...)[1:] // misaligned on purpose
			wide := make([]float32, f.patterns())
			require.NoError(t, ToFloat32(wide, src, f.d))
			back := make([]byte, 1+len(src))[1:]
			require.NoError(t, FromFloat32(back, wide, f.d))
			for h := range wide {
				want := f.widen(uint16(h))
				require.Equal(t, math.Float32bits(want), math.Float32bits(wide[h]), "%v %#x", f.d, h)
				got := uint16(back[h*(len(back)/len(wide))])
				if f.bits == 16 {
					got = little.Uint16(back[2*h:])
				}
				require.Equal(t, f.narrow(want), got, "%v %#x", f.d, h)
			}
		}
	})
}

func TestIntegers(t *testing.T) {
	in := []float32{0, -1, 1, 0.5, 1.5, 2.5, -2.5, 300, -300, 1e10, -1e10, 1e30, -1e30, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	cases := []struct {
		d    DType
		want []float32
	}{
		{Bool, []float32{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{U8, []float32{0, 0, 1, 0, 2, 2, 0, 255, 0, 255, 0, 255, 0, 0, 255, 0}},
		{I8, []float32{0, -1, 1, 0, 2, 2, -2, 127, -128, 127, -128, 127, -128, 0, 127, -128}},
		{U16, []float32{0, 0, 1, 0, 2, 2, 0, 300, 0, 65535, 0, 65535, 0, 0, 65535, 0}},
		{I16, []float32{0, -1, 1, 0, 2, 2, -2, 300, -300, 32767, -32768, 32767, -32768, 0, 32767, -32768}},
		{U32, []float32{0, 0, 1, 0, 2, 2, 0, 300, 0, 1 << 32, 0, 1 << 32, 0, 0, 1 << 32, 0}},
		{I32, []float32{0, -1, 1, 0, 2, 2, -2, 300, -300, 1 << 31, -1 << 31, 1 << 31, -1 << 31, 0, 1 << 31, -1 << 31}},
		{U64, []float32{0, 0, 1, 0, 2, 2, 0, 300, 0, 1e10, 0, 1 << 64, 0, 0, 1 << 64, 0}},
		{I64, []float32{0, -1, 1, 0, 2, 2, -2, 300, -300, 1e10, -1e10, 1 << 63, -1 << 63, 0, 1 << 63, -1 << 63}},
	}
	each(t, func(t *testing.T) {
		for _, c := range cases {
			raw := make([]byte, len(in)*c.d.Size())
			require.NoError(t, FromFloat32(raw, in, c.d))
			got := make([]float32, len(in))
			require.NoError(t, ToFloat32(got, raw, c.d))
			assert.Equal(t, c.want, got, "%v", c.d)
		}
	})
}

// Integers above 2^24 and doubles round once, to the nearest float32.
func TestWideTypesRoundOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.Uint64().Draw(t, "bits")
		raw := binary.LittleEndian.AppendUint64(nil, bits)
		var got [1]float32
		require.NoError(t, ToFloat32(got[:], raw, U64))
		assert.Equal(t, float32(bits), got[0])
		require.NoError(t, ToFloat32(got[:], raw, I64))
		assert.Equal(t, float32(int64(bits)), got[0])
		if f := math.Float64frombits(bits); f == f {
			require.NoError(t, ToFloat32(got[:], raw, F64))
			assert.Equal(t, float32(f), got[0])
		}
	})
	var got [1]float32
	// 2^24+1 is a tie and goes to the even neighbour, one more bit breaks it.
	require.NoError(t, ToFloat32(got[:], binary.LittleEndian.AppendUint64(nil, 1<<62+1<<38), U64))
	assert.Equal(t, float32(1<<62), got[0])
	require.NoError(t, ToFloat32(got[:], binary.LittleEndian.AppendUint64(nil, 1<<62+1<<38+1), U64))
	assert.Equal(t, float32(1<<62+1<<39), got[0])
}

func TestFloat32AndFloat64AreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Float32()).Draw(t, "values")
		for _, d := range []DType{F32, F64} {
			raw := make([]byte, 1+len(in)*d.Size())[1:]
			out := make([]float32, len(in))
			require.NoError(t, FromFloat32(raw, in, d))
			require.NoError(t, ToFloat32(out, raw, d))
			assert.Equal(t, in, out)
		}
	})
}

func TestConversionErrors(t *testing.T) {
	for _, d := range numbers {
		size := bytesFor(4, d)
		assert.ErrorIs(t, ToFloat32(make([]float32, 4), make([]byte, size+1), d), ErrLength, d)
		assert.ErrorIs(t, ToFloat32(make([]float32, 3), make([]byte, size), d), ErrLength, d)
		assert.ErrorIs(t, ToFloat64(make([]float64, 3), make([]byte, size), d), ErrLength, d)
		assert.ErrorIs(t, FromFloat32(make([]byte, size-1), make([]float32, 4), d), ErrLength, d)
		assert.NoError(t, ToFloat32(nil, nil, d))
		assert.NoError(t, FromFloat32(nil, nil, d))
	}
	assert.ErrorIs(t, ToFloat32(nil, nil, Invalid), ErrDType)
	assert.ErrorIs(t, ToFloat64(nil, nil, Invalid), ErrDType)
	assert.ErrorIs(t, FromFloat32(nil, nil, DType(200)), ErrDType)
	err := FromFloat32(make([]byte, 5), make([]float32, 3), F16)
	assert.EqualError(t, err, "tensor: 3 elements of F16 take 2 bytes each, found 5 bytes in all: wrong length")
}
