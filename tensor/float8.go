package tensor

import "math"

// F8E5M2ToFloat32 converts an 8-bit float with 5 exponent and 2 mantissa bits,
// the upper half of a binary16. Every value is exact. Format: "FP8 Formats for
// Deep Learning", arXiv 2209.05433.
func F8E5M2ToFloat32(h uint8) float32 { return f8e5m2[h] }

// Float32ToF8E5M2 rounds to the nearest F8_E5M2 number, ties to even; values of
// at least 61440 become infinite. NaN keeps its sign and becomes 0x7F.
func Float32ToF8E5M2(f float32) uint8 {
	b := math.Float32bits(f)
	sign, abs := uint8(b>>24)&0x80, b&0x7fffffff
	if abs > infinity {
		return sign | 0x7f
	}
	return sign | uint8(min(encode(abs, 2, 15), 0x7c))
}

// F8E4M3ToFloat32 converts an 8-bit float with 4 exponent and 3 mantissa bits,
// the "fn" variant: no infinities, NaN at 0x7F and 0xFF only, largest number
// 448. Every value is exact.
func F8E4M3ToFloat32(h uint8) float32 { return f8e4m3[h] }

// Float32ToF8E4M3 rounds to the nearest F8_E4M3 number, ties to even. It
// saturates, as PyTorch does since 2.15: infinities and values beyond 448
// become 448. NaN keeps its sign.
func Float32ToF8E4M3(f float32) uint8 {
	b := math.Float32bits(f)
	sign, abs := uint8(b>>24)&0x80, b&0x7fffffff
	if abs > infinity {
		return sign | 0x7f
	}
	return sign | uint8(min(encode(abs, 3, 7), 0x7e))
}

const infinity = 0x7f800000 // the bits of a float32

// encode returns the code of the nearest small float, ties to even, for a
// float32 with the bits abs ≥ 0. Codes beyond the format's largest continue the
// sequence.
func encode(abs, mantissa, bias uint32) uint32 {
	if abs >= (128-bias)<<23 { // the smallest normal number
		drop := 23 - mantissa
		return (roundBits(abs, uint(drop)) - (127-bias)<<23) >> drop
	}
	// At this magnitude float32 numbers are spaced like the subnormals of the
	// format: the addition rounds, and its low bits are the result.
	magic := (127 + 24 - bias - mantissa) << 23
	return math.Float32bits(math.Float32frombits(abs)+math.Float32frombits(magic)) - magic
}

// decode is the inverse of encode, with the sign, for a float with the given
// number of bits.
func decode(code, bits, mantissa, bias uint32) float32 {
	sign, abs := code>>(bits-1)<<31, code&(1<<(bits-1)-1)
	if abs < 1<<mantissa {
		smallest := math.Float32frombits((128 - bias - mantissa) << 23)
		return math.Float32frombits(sign | math.Float32bits(float32(abs)*smallest))
	}
	return math.Float32frombits(sign | (abs<<(23-mantissa) + (127-bias)<<23))
}

var (
	f8e5m2 = table8(func(h uint32) float32 { return F16ToFloat32(uint16(h) << 8) })
	f8e4m3 = table8(func(h uint32) float32 { return orNaN(h&0x7f == 0x7f, h, decode(h, 8, 3, 7)) })
)

func table8(value func(h uint32) float32) *[256]float32 {
	var t [256]float32
	for h := range t {
		t[h] = value(uint32(h))
	}
	return &t
}

// orNaN returns f, or a quiet NaN with the sign of the code h.
func orNaN(nan bool, h uint32, f float32) float32 {
	if nan {
		return math.Float32frombits(h>>7<<31 | 0x7fc00000)
	}
	return f
}
