package tensor

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// format describes a small float by its definition, in float64 arithmetic.
type format struct {
	name               string
	bits, mantissa     int
	bias               int
	infinite           bool // has infinities; otherwise only all ones is NaN
	widen              func(uint16) float32
	narrow             func(float32) uint16
	quietNaN           uint16 // bits that every NaN made by narrow has
	overflowsToNaN     bool
	firstBeyondFinites float64 // what the number after the largest finite one would be
}

var formats = []format{
	{"F16", 16, 10, 15, true, F16ToFloat32, Float32ToF16, 0x7e00, false, 65536},
	{"BF16", 16, 7, 127, true, BF16ToFloat32, Float32ToBF16, 0x7fc0, false, math.Ldexp(1, 128)},
	{"F8_E5M2", 8, 2, 15, true,
		func(h uint16) float32 { return F8E5M2ToFloat32(uint8(h)) },
		func(f float32) uint16 { return uint16(Float32ToF8E5M2(f)) }, 0x7e, false, 65536},
	{"F8_E4M3", 8, 3, 7, false,
		func(h uint16) float32 { return F8E4M3ToFloat32(uint8(h)) },
		func(f float32) uint16 { return uint16(Float32ToF8E4M3(f)) }, 0x7f, true, 480},
}

// decode is the textbook definition of the format's value.
func (f format) decode(h uint16) float64 {
	exponentBits := f.bits - 1 - f.mantissa
	m := int(h) & (1<<f.mantissa - 1)
	e := int(h) >> f.mantissa & (1<<exponentBits - 1)
	sign := 1.0
	if h>>(f.bits-1) == 1 {
		sign = -1
	}
	allOnes := e == 1<<exponentBits-1
	switch {
	case f.infinite && allOnes && m == 0:
		return math.Inf(int(sign))
	case f.infinite && allOnes, !f.infinite && allOnes && m == 1<<f.mantissa-1:
		return math.NaN()
	case e == 0:
		return math.Copysign(math.Ldexp(float64(m), 1-f.bias-f.mantissa), sign)
	default:
		return math.Copysign(math.Ldexp(float64(1<<f.mantissa+m), e-f.bias-f.mantissa), sign)
	}
}

// nearest finds the format's number nearest to x ≥ 0 by bisection over all of
// them, ties to the even pattern.
func (f format) nearest(x float64) uint16 {
	last := uint16(1)<<(f.bits-1) - 1 // the largest positive pattern
	value := func(h uint16) float64 {
		if v := f.decode(h); !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
		return f.firstBeyondFinites
	}
	for h := last; ; h-- { // the first pattern past the finite numbers
		if v := f.decode(h); !math.IsNaN(v) && !math.IsInf(v, 0) {
			last = h + 1
			break
		}
	}
	if x >= f.firstBeyondFinites {
		return last
	}
	lo, hi := uint16(0), last
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; value(mid) <= x {
			lo = mid
		} else {
			hi = mid
		}
	}
	below, above := x-value(lo), value(hi)-x
	if below < above || below == above && lo%2 == 0 {
		return lo
	}
	return hi
}

func (f format) patterns() int { return 1 << f.bits }

func TestWidenEveryPattern(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			for h := range f.patterns() {
				want, got := f.decode(uint16(h)), float64(f.widen(uint16(h)))
				if math.IsNaN(want) {
					require.True(t, math.IsNaN(got), "%#x", h)
				} else {
					require.Equal(t, math.Float64bits(want), math.Float64bits(got), "%#x: want %g, got %g", h, want, got)
				}
			}
		})
	}
}

func TestNarrowWidenIsIdentity(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			for h := range f.patterns() {
				wide := f.widen(uint16(h))
				got := f.narrow(wide)
				if !math.IsNaN(float64(wide)) {
					require.Equal(t, uint16(h), got, "%#x", h)
					continue
				}
				require.Equal(t, f.quietNaN, got&f.quietNaN, "%#x: NaN stays and is quiet", h)
				require.Equal(t, uint16(h)>>(f.bits-1), got>>(f.bits-1), "%#x: sign of NaN", h)
			}
		})
	}
}

// Every midpoint between neighbours, and the float32 numbers next to it, round
// as the definition says: the exhaustive test of rounding.
func TestNarrowEveryMidpoint(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			for h := range f.patterns() / 2 {
				lo := f.decode(uint16(h))
				if math.IsNaN(lo) || math.IsInf(lo, 0) {
					continue
				}
				hi := f.decode(uint16(h + 1))
				if math.IsNaN(hi) || math.IsInf(hi, 0) {
					hi = f.firstBeyondFinites
				}
				mid := float32(lo/2 + hi/2)
				for _, x := range []float32{
					float32(lo), math.Nextafter32(mid, 0), mid, math.Nextafter32(mid, math.MaxFloat32), math.Nextafter32(float32(lo), 0),
				} {
					want := f.nearest(float64(x))
					require.Equal(t, want, f.narrow(x), "%g", x)
					require.Equal(t, want|1<<(f.bits-1), f.narrow(-x), "%g", -x)
				}
			}
		})
	}
}

func TestNarrowExtremes(t *testing.T) {
	inf := float32(math.Inf(1))
	assert.Equal(t, uint16(0x7c00), Float32ToF16(inf))
	assert.Equal(t, uint16(0xfc00), Float32ToF16(-inf))
	assert.Equal(t, uint16(0x7bff), Float32ToF16(65519))
	assert.Equal(t, uint16(0x7c00), Float32ToF16(65520))
	assert.Equal(t, uint16(0x7f80), Float32ToBF16(inf))
	assert.Equal(t, uint16(0x7f80), Float32ToBF16(math.MaxFloat32))
	assert.Equal(t, uint8(0x7c), Float32ToF8E5M2(inf))
	assert.Equal(t, uint8(0x7b), Float32ToF8E5M2(61439))
	assert.Equal(t, uint8(0x7c), Float32ToF8E5M2(61440))
	assert.Equal(t, uint8(0x7e), Float32ToF8E4M3(464))
	assert.Equal(t, uint8(0x7f), Float32ToF8E4M3(464.1))
	assert.Equal(t, uint8(0xff), Float32ToF8E4M3(-inf))
	assert.Equal(t, uint16(0x8000), Float32ToF16(float32(math.Copysign(0, -1))))

	signalling := math.Float32frombits(0x7f800001)
	assert.Equal(t, uint16(0x7e00), Float32ToF16(signalling))
	assert.Equal(t, uint16(0x7fc0), Float32ToBF16(signalling))
	assert.Equal(t, uint32(0x7fc02000), math.Float32bits(F16ToFloat32(0x7c01)))
}

func TestNarrowAnyFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(formats).Draw(t, "format")
		bits := rapid.Uint32().Draw(t, "bits")
		x := math.Float32frombits(bits)
		if x != x {
			assert.Equal(t, f.quietNaN, f.narrow(x)&f.quietNaN)
			return
		}
		want := f.nearest(math.Abs(float64(x)))
		if math.Signbit(float64(x)) {
			want |= 1 << (f.bits - 1)
		}
		assert.Equal(t, want, f.narrow(x), "%s of %g", f.name, x)
	})
}
