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
	d                    DType
	bits, mantissa, bias int
	kind                 kind
	widen                func(uint16) float32
	narrow               func(float32) uint16
}

// kind says which codes are no numbers.
type kind int

const (
	ieee kind = iota // the largest exponent: infinities and NaN
	fn               // NaN is all ones; what is too large is the largest number
)

func bytewise(d DType, bits, mantissa, bias int, k kind, widen func(uint8) float32, narrow func(float32) uint8) format {
	return format{d, bits, mantissa, bias, k,
		func(h uint16) float32 { return widen(uint8(h)) },
		func(f float32) uint16 { return uint16(narrow(f)) }}
}

var formats = []format{
	{F16, 16, 10, 15, ieee, F16ToFloat32, Float32ToF16},
	{BF16, 16, 7, 127, ieee, BF16ToFloat32, Float32ToBF16},
	bytewise(F8E5M2, 8, 2, 15, ieee, F8E5M2ToFloat32, Float32ToF8E5M2),
	bytewise(F8E4M3, 8, 3, 7, fn, F8E4M3ToFloat32, Float32ToF8E4M3),
}

func (f format) patterns() int { return 1 << f.bits }
func (f format) sign() uint16  { return 1 << (f.bits - 1) }

// decode is the textbook definition of the format's value.
func (f format) decode(h uint16) float64 {
	sign := 1.0
	if h&f.sign() != 0 {
		sign = -1
	}
	abs := h &^ f.sign()
	switch {
	case f.kind == ieee && abs == f.infinity():
		return math.Inf(int(sign))
	case f.kind == ieee && abs > f.infinity(), f.kind == fn && abs == f.sign()-1:
		return math.NaN()
	}
	return sign * f.magnitude(abs)
}

// infinity is the code with the largest exponent and no mantissa.
func (f format) infinity() uint16 { return f.sign() - 1<<f.mantissa }

// magnitude is the value of a code, also beyond those of the format.
func (f format) magnitude(abs uint16) float64 {
	m, e := int(abs)&(1<<f.mantissa-1), int(abs)>>f.mantissa
	if e == 0 {
		return math.Ldexp(float64(m), 1-f.bias-f.mantissa)
	}
	return math.Ldexp(float64(1<<f.mantissa+m), e-f.bias-f.mantissa)
}

// beyond is the first code past the finite numbers.
func (f format) beyond() uint16 {
	if f.kind == ieee {
		return f.infinity()
	}
	return f.sign() - 1
}

// nearest finds the code of the number nearest to x by bisection over all of
// them, ties to the even code.
func (f format) nearest(x float64) uint16 {
	sign := uint16(0)
	if math.Signbit(x) {
		sign = f.sign()
	}
	abs := math.Abs(x)
	lo, hi := uint16(0), f.beyond()
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; f.magnitude(mid) <= abs {
			lo = mid
		} else {
			hi = mid
		}
	}
	below, above := abs-f.magnitude(lo), f.magnitude(hi)-abs
	if above < below || above == below && hi%2 == 0 || math.IsInf(abs, 1) {
		lo = hi
	}
	if lo == f.beyond() && f.kind == fn {
		lo--
	}
	return sign | lo
}

func TestWidenEveryPattern(t *testing.T) {
	for _, f := range formats {
		t.Run(f.d.String(), func(t *testing.T) {
			for h := range f.patterns() {
				want, got := f.decode(uint16(h)), float64(f.widen(uint16(h)))
				if math.IsNaN(want) {
					require.True(t, math.IsNaN(got), "%#x", h)
				} else if math.Float64bits(want) != math.Float64bits(got) {
					require.Failf(t, "not exact", "%#x: want %g, got %g", h, want, got)
				}
			}
		})
	}
}

func TestNarrowWidenIsIdentity(t *testing.T) {
	for _, f := range formats {
		t.Run(f.d.String(), func(t *testing.T) {
			quiet := f.narrow(float32(math.NaN()))
			for h := range f.patterns() {
				wide := f.widen(uint16(h))
				got := f.narrow(wide)
				if wide != wide {
					require.Equal(t, quiet, got&quiet, "%#x: NaN stays and is quiet", h)
					require.Equal(t, uint16(h)&f.sign(), got&f.sign(), "%#x: sign of NaN", h)
				} else if got != uint16(h) {
					require.Failf(t, "not the identity", "%#x became %#x", h, got)
				}
			}
		})
	}
}

// Every midpoint between neighbours, and the float32 numbers next to it, round
// as the definition says: the exhaustive test of rounding.
func TestNarrowEveryMidpoint(t *testing.T) {
	for _, f := range formats {
		t.Run(f.d.String(), func(t *testing.T) {
			for h := range f.beyond() {
				lo, hi := f.magnitude(h), f.magnitude(h+1)
				mid := float32(lo/2 + hi/2)
				for _, x := range []float32{
					float32(lo), math.Nextafter32(mid, 0), mid, math.Nextafter32(mid, math.MaxFloat32), math.Nextafter32(float32(lo), 0), float32(hi),
				} {
					for _, x := range []float32{x, -x} {
						if want, got := f.nearest(float64(x)), f.narrow(x); got != want {
							require.Failf(t, "wrong neighbour", "%g: want %#x, got %#x", x, want, got)
						}
					}
				}
			}
		})
	}
}

func TestNarrowAnyFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(formats).Draw(t, "format")
		x := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if x != x {
			quiet := f.narrow(float32(math.NaN()))
			assert.Equal(t, quiet, f.narrow(x)&quiet)
			return
		}
		assert.Equal(t, f.nearest(float64(x)), f.narrow(x), "%v of %g", f.d, x)
	})
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
	assert.Equal(t, uint8(0x7e), Float32ToF8E4M3(465))
	assert.Equal(t, uint8(0xfe), Float32ToF8E4M3(-inf))
	assert.Equal(t, uint16(0x8000), Float32ToF16(float32(math.Copysign(0, -1))))

	signalling := math.Float32frombits(0xff800001)
	assert.Equal(t, uint16(0xfe00), Float32ToF16(signalling))
	assert.Equal(t, uint16(0xffc0), Float32ToBF16(signalling))
	assert.Equal(t, uint8(0xff), Float32ToF8E5M2(signalling))
	assert.Equal(t, uint8(0xff), Float32ToF8E4M3(signalling))
	assert.Equal(t, uint32(0x7fc02000), math.Float32bits(F16ToFloat32(0x7c01)))
	assert.Equal(t, uint32(0xffc00000), math.Float32bits(F8E4M3ToFloat32(0xff)))
}
