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
	ieee   kind = iota // the largest exponent: infinities and NaN
	fn                 // NaN is all ones; what is too large is the largest number
	fnuz               // NaN is the code of negative zero, and what is too large
	finite             // all are numbers; what is too large is the largest
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
	bytewise(F8E4M3FNUZ, 8, 3, 8, fnuz, F8E4M3FNUZToFloat32, Float32ToF8E4M3FNUZ),
	bytewise(F8E5M2FNUZ, 8, 2, 16, fnuz, F8E5M2FNUZToFloat32, Float32ToF8E5M2FNUZ),
	bytewise(F6E2M3, 6, 3, 1, finite, F6E2M3ToFloat32, Float32ToF6E2M3),
	bytewise(F6E3M2, 6, 2, 3, finite, F6E3M2ToFloat32, Float32ToF6E3M2),
	bytewise(F4, 4, 1, 1, finite, F4ToFloat32, Float32ToF4),
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
	case f.kind == ieee && abs > f.infinity(), f.kind == fn && abs == f.sign()-1, f.kind == fnuz && h == f.sign():
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
	switch f.kind {
	case ieee:
		return f.infinity()
	case fn:
		return f.sign() - 1
	}
	return f.sign()
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
	switch {
	case lo == f.beyond() && (f.kind == fn || f.kind == finite):
		lo--
	case f.kind == fnuz && (lo == 0 || lo == f.sign()):
		return lo
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
	assert.Equal(t, uint8(0x7f), Float32ToF8E4M3FNUZ(247.9))
	assert.Equal(t, uint8(0x80), Float32ToF8E4M3FNUZ(248))
	assert.Equal(t, uint8(0x80), Float32ToF8E5M2FNUZ(-inf))
	assert.Equal(t, uint8(0), Float32ToF8E5M2FNUZ(-1e-30))
	assert.Equal(t, uint8(7), Float32ToF4(inf))
	assert.Equal(t, uint8(15), Float32ToF4(-7))
	assert.Equal(t, uint8(31), Float32ToF6E2M3(8))
	assert.Equal(t, uint8(63), Float32ToF6E3M2(-inf))
	assert.Equal(t, uint16(0x8000), Float32ToF16(float32(math.Copysign(0, -1))))

	signalling := math.Float32frombits(0xff800001)
	assert.Equal(t, uint16(0xfe00), Float32ToF16(signalling))
	assert.Equal(t, uint16(0xffc0), Float32ToBF16(signalling))
	assert.Equal(t, uint8(0xff), Float32ToF8E5M2(signalling))
	assert.Equal(t, uint8(0xff), Float32ToF8E4M3(signalling))
	assert.Equal(t, uint8(7), Float32ToF4(signalling))
	assert.Equal(t, uint8(31), Float32ToF6E2M3(signalling))
	assert.Equal(t, uint8(31), Float32ToF6E3M2(signalling))
	assert.Equal(t, uint32(0x7fc02000), math.Float32bits(F16ToFloat32(0x7c01)))
	assert.Equal(t, uint32(0xffc00000), math.Float32bits(F8E4M3ToFloat32(0xff)))
}

// The powers of two have no sign and no zero.
func TestE8M0(t *testing.T) {
	for h := range 255 {
		v := F8E8M0ToFloat32(uint8(h))
		require.Equal(t, math.Ldexp(1, h-127), float64(v))
		require.Equal(t, uint8(h), Float32ToF8E8M0(v))
		require.Equal(t, uint8(h), Float32ToF8E8M0(-v))
		if h > 0 { // from the middle on up, which below it is a subnormal float32 for 0
			require.Equal(t, uint8(h+1), Float32ToF8E8M0(v*1.5))
			require.Equal(t, uint8(h), Float32ToF8E8M0(math.Nextafter32(v*1.5, 0)))
		}
	}
	assert.True(t, math.IsNaN(float64(F8E8M0ToFloat32(255))))
	for _, c := range []struct {
		x    float32
		want uint8
	}{
		{0, 0}, {0x1p-149, 0}, {0x1p-127, 0}, {math.Nextafter32(0x1p-127, 1), 1}, {0x1p-126, 1},
		{math.MaxFloat32, 255}, {float32(math.Inf(-1)), 255}, {float32(math.NaN()), 255}, {math.Float32frombits(0x7f800001), 255}, {math.Float32frombits(0xffffffff), 255},
	} {
		assert.Equal(t, c.want, Float32ToF8E8M0(c.x), "%g", c.x)
	}
}
