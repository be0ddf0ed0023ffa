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

func TestBulkConversionsAgreeWithScalars(t *testing.T) {
	for _, f := range formats {
		d, err := ParseDType(f.name)
		require.NoError(t, err)
		n, size := f.patterns(), d.Size()
		src := make([]byte, 1+n*size)[1:] // misaligned on purpose
		for h := range n {
			src[h*size] = byte(h)
			src[h*size+size-1] |= byte(h >> (8 * (size - 1)))
		}
		wide := make([]float32, n)
		require.NoError(t, ToFloat32(wide, src, d))
		back := make([]byte, 1+n*size)[1:]
		require.NoError(t, FromFloat32(back, wide, d))
		for h := range n {
			require.Equal(t, math.Float32bits(f.widen(uint16(h))), math.Float32bits(wide[h]), "%v %#x", d, h)
			got := uint16(back[h*size])
			if size == 2 {
				got = binary.LittleEndian.Uint16(back[h*size:])
			}
			require.Equal(t, f.narrow(wide[h]), got, "%v %#x", d, h)
		}
	}
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
	for _, c := range cases {
		raw := make([]byte, len(in)*c.d.Size())
		require.NoError(t, FromFloat32(raw, in, c.d))
		got := make([]float32, len(in))
		require.NoError(t, ToFloat32(got, raw, c.d))
		assert.Equal(t, c.want, got, "%v", c.d)
	}
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
		assert.ErrorIs(t, ToFloat32(make([]float32, 2), make([]byte, 2*d.Size()+1), d), ErrLength, d)
		assert.ErrorIs(t, ToFloat32(make([]float32, 2), make([]byte, 3*d.Size()), d), ErrLength, d)
		assert.ErrorIs(t, FromFloat32(make([]byte, d.Size()), make([]float32, 2), d), ErrLength, d)
		assert.NoError(t, ToFloat32(nil, nil, d))
		assert.NoError(t, FromFloat32(nil, nil, d))
	}
	assert.ErrorIs(t, ToFloat32(nil, nil, Invalid), ErrDType)
	assert.ErrorIs(t, FromFloat32(nil, nil, DType(200)), ErrDType)
}

func BenchmarkToFloat32(b *testing.B) { benchmarkConvert(b, ToFloat32) }
func BenchmarkFromFloat32(b *testing.B) {
	benchmarkConvert(b, func(f []float32, raw []byte, d DType) error { return FromFloat32(raw, f, d) })
}

func benchmarkConvert(b *testing.B, convert func([]float32, []byte, DType) error) {
	const n = 1 << 16
	for _, d := range []DType{F32, BF16, F16, F8E4M3, F8E5M2, I64} {
		b.Run(d.String(), func(b *testing.B) {
			wide, raw := make([]float32, n), make([]byte, n*d.Size())
			for i := range wide {
				wide[i] = float32(i)/n - 0.5
			}
			require.NoError(b, FromFloat32(raw, wide, d))
			b.SetBytes(4 * n)
			for b.Loop() {
				if err := convert(wide, raw, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
