package tensor

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ranges are the smallest and the largest number of each integer type.
var ranges = map[DType][2]string{
	U8: {"0", "255"}, I8: {"-128", "127"}, U16: {"0", "65535"}, I16: {"-32768", "32767"},
	U32: {"0", "4294967295"}, I32: {"-2147483648", "2147483647"},
	U64: {"0", "18446744073709551615"}, I64: {"-9223372036854775808", "9223372036854775807"},
}

// wholeOf is the number of an integer's bytes, or of those of a Bool.
func wholeOf(b []byte, d DType) *big.Int {
	var bits uint64
	for i, x := range b[:d.Size()] {
		bits |= uint64(x) << (8 * i)
	}
	if d == Bool {
		bits = uint64(truth(bits != 0))
	}
	if lo := ranges[d][0]; lo != "" && lo[0] == '-' {
		return big.NewInt(int64(bits) << (64 - d.Bits()) >> (64 - d.Bits()))
	}
	return new(big.Int).SetUint64(bits)
}

// clamped is x within the range of d.
func clamped(x *big.Int, d DType) *big.Int {
	if d == Bool {
		return new(big.Int).SetUint64(uint64(truth(x.Sign() != 0)))
	}
	lo, _ := new(big.Int).SetString(ranges[d][0], 10)
	hi, _ := new(big.Int).SetString(ranges[d][1], 10)
	switch {
	case x.Cmp(lo) < 0:
		return lo
	case x.Cmp(hi) > 0:
		return hi
	}
	return x
}

func drawWord(t *rapid.T) []byte {
	x := rapid.Uint64().Draw(t, "word")
	return little.AppendUint64(nil, x>>rapid.IntRange(0, 63).Draw(t, "shift")<<rapid.IntRange(0, 40).Draw(t, "zeros"))
}

func TestIntegerPairsAreExactOrAtTheLimit(t *testing.T) {
	whole := []DType{Bool, U8, I8, U16, I16, U32, I32, U64, I64}
	rapid.Check(t, func(t *rapid.T) {
		word := drawWord(t)
		for _, from := range whole {
			for _, to := range whole {
				src, got := word[:from.Size()], make([]byte, to.Size())
				if from == Bool {
					src = []byte{word[0] & 1}
				}
				require.NoError(t, Convert(got, to, src, from))
				require.Equal(t, clamped(wholeOf(src, from), to).String(), wholeOf(got, to).String(), "%v to %v", from, to)
			}
			var wide [1]float64
			require.NoError(t, ToFloat64(wide[:], word[:from.Size()], from))
			want, _ := new(big.Float).SetInt(wholeOf(word, from)).Float64()
			require.Equal(t, want, wide[0], from)
		}
	})
}

func TestDoublesToIntegers(t *testing.T) {
	check := func(t require.TestingT, x float64) {
		want := new(big.Int)
		if r := math.RoundToEven(x); !math.IsNaN(r) && !math.IsInf(r, 0) {
			new(big.Float).SetFloat64(r).Int(want)
		} else if math.IsInf(r, 0) {
			want.Lsh(big.NewInt(int64(math.Copysign(1, r))), 70)
		}
		for d := range ranges {
			got := make([]byte, d.Size())
			require.NoError(t, Convert(got, d, little.AppendUint64(nil, math.Float64bits(x)), F64))
			require.Equal(t, clamped(want, d).String(), wholeOf(got, d).String(), "%g to %v", x, d)
		}
	}
	for _, x := range []float64{0, 0.5, 1.5, -2.5, 255.5, 1 << 31, 1 << 53, 1 << 62, 1 << 63, 1 << 64, -1 << 63, -1 << 65, math.NaN(), math.Inf(1), math.Inf(-1), 0x1.fffffffffffffp63} {
		check(t, x)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Float64().Draw(t, "x")) })
	rapid.Check(t, func(t *rapid.T) {
		check(t, math.Ldexp(rapid.Float64Range(-1, 1).Draw(t, "x"), rapid.IntRange(0, 66).Draw(t, "exponent")))
	})

	var got [3]byte
	require.NoError(t, Convert(got[:], Bool, little.AppendUint64(little.AppendUint64(make([]byte, 8), 1), math.Float64bits(math.NaN())), F64))
	assert.Equal(t, [3]byte{0, 1, 1}, got, "the smallest double is not zero, NaN neither")
}

// What float32 does not hold is rounded once on the way to a small type.
func TestSmallTypesRoundOnce(t *testing.T) {
	code := func(b []byte) uint16 {
		if len(b) == 1 {
			return uint16(b[0])
		}
		return little.Uint16(b)
	}
	check := func(t require.TestingT, x float64, src []byte, from DType) {
		for _, f := range formats {
			got := make([]byte, f.d.Size())
			require.NoError(t, Convert(got, f.d, src, from))
			want := f.nearest(x)
			require.Equal(t, want, code(got), "%v %v to %v", from, x, f.d)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(formats).Draw(t, "format")
		h := rapid.Uint16Range(0, f.beyond()-1).Draw(t, "code")
		x := f.magnitude(h)/2 + f.magnitude(h+1)/2
		switch rapid.IntRange(0, 2).Draw(t, "place") { // less than a float32 away from the middle
		case 0:
			x = math.Nextafter(x, 0)
		case 1:
			x = math.Nextafter(x, math.Inf(1))
		}
		check(t, x, little.AppendUint64(nil, math.Float64bits(x)), F64)
		check(t, -x, little.AppendUint64(nil, math.Float64bits(-x)), F64)
	})
	rapid.Check(t, func(t *rapid.T) {
		word := drawWord(t)
		if rapid.Bool().Draw(t, "near a tie") {
			// The middle between two of the 8-bit numbers that BF16 has.
			middle := 2*rapid.Uint64Range(128, 255).Draw(t, "mantissa") + 1
			middle <<= rapid.IntRange(10, 55).Draw(t, "exponent")
			word = little.AppendUint64(nil, middle+rapid.Uint64Range(0, 2).Draw(t, "beside")-1)
		}
		for _, from := range []DType{I32, U32, I64, U64} {
			n := wholeOf(word, from)
			// All bits to the last that matters, and whether there are more.
			x, exact := new(big.Float).SetInt(n).Float64()
			if exact != big.Exact {
				x, _ = new(big.Float).SetMode(big.ToZero).SetPrec(53).SetInt(n).Float64()
				x = math.Float64frombits(math.Float64bits(x) | 1)
			}
			check(t, x, word[:from.Size()], from)
		}
	})
	for _, x := range []float64{math.Inf(1), math.Inf(-1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 0, math.Copysign(0, -1), 0x1p-150, 0x1.000001p-150, -0x1p-134, 0x1.fffffep127, 0x1.ffffffp127} {
		check(t, x, little.AppendUint64(nil, math.Float64bits(x)), F64)
	}
}

// Every type goes through every other: widening and coming back is the
// identity, also where data is not aligned and longer than a chunk.
func TestConvertThereAndBack(t *testing.T) {
	holds := map[DType][]DType{
		Bool: numbers,
		U8:   {I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64}, I8: {I16, I32, I64, F16, BF16, F32, F64},
		F8E5M2: {F16, BF16, F32, F64}, F8E4M3: {F16, BF16, F32, F64},
		I16: {I32, I64, F32, F64}, U16: {I32, U32, I64, U64, F32, F64},
		F16: {F32, F64}, BF16: {F32, F64}, I32: {I64, F64}, U32: {I64, U64, F64}, F32: {F64},
	}
	each(t, func(t *testing.T) {
		for from, wider := range holds {
			n := 3*chunk + 100
			src := anyBytes(3, bytesFor(n, from)+1)[1:]
			if from == Bool {
				for i := range src {
					src[i] &= 1
				}
			}
			for _, to := range wider {
				there, back := make([]byte, bytesFor(n, to)+3)[3:], make([]byte, len(src)+5)[5:]
				require.NoError(t, Convert(there, to, src, from))
				require.NoError(t, Convert(back, from, there, to))
				requireQuieted(t, src, back, from)
			}
		}
	})
}

// requireQuieted compares numbers; NaN has become quiet.
func requireQuieted(t *testing.T, want, got []byte, d DType) {
	require.Equal(t, canonical(t, append([]byte{}, want...), d), canonical(t, append([]byte{}, got...), d), d)
}

func TestConvertErrors(t *testing.T) {
	four := make([]byte, 4)
	assert.ErrorIs(t, Convert(four, Invalid, four, F32), ErrDType)
	assert.ErrorIs(t, Convert(four, F32, four, DType(77)), ErrDType)
	assert.ErrorIs(t, Convert(four, F32, four, F64), ErrLength, "half an element")
	assert.ErrorIs(t, Convert(four, BF16, four, F32), ErrLength)
	assert.NoError(t, Convert(nil, U8, nil, F16))
}

func TestConvertAllocatesNothing(t *testing.T) {
	src, dst := make([]byte, 1+8*5000)[1:], make([]byte, 1+8*5000)[1:]
	each(t, func(t *testing.T) {
		for _, from := range numbers {
			for _, to := range numbers {
				n := 4000
				allocs := testing.AllocsPerRun(5, func() { // a mean, as the runtime allocates too
					if err := Convert(dst[:bytesFor(n, to)], to, src[:bytesFor(n, from)], from); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, allocs, "%v to %v", from, to)
			}
		}
	})
}
