package tensor

import "math"

// F16ToFloat32 converts an IEEE 754 binary16 number; every value is exact. NaN
// keeps its sign and payload and becomes quiet, as in hardware.
func F16ToFloat32(h uint16) float32 {
	b := uint32(h&0x7fff) << 13 // exponent and mantissa at the position of a float32's
	switch {
	case b < 1<<23: // subnormal: a multiple of 2^-24
		b = math.Float32bits(float32(b) * 0x1p-37)
	case b < 31<<23:
		b += (127 - 15) << 23
	case b == 31<<23:
		b = infinity
	default:
		b |= 0x7fc00000
	}
	return math.Float32frombits(b | uint32(h&0x8000)<<16)
}

// Float32ToF16 rounds to the nearest IEEE 754 binary16 number, ties to even;
// values of at least 65520 become infinite. NaN keeps its sign and the upper
// bits of its payload and becomes quiet.
func Float32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13)&0x01ff
	case abs >= 0x477ff000: // 65520
		return sign | 0x7c00
	case abs >= 0x38800000: // 2^-14, the smallest normal number
		return sign | uint16((roundBits(abs, 13)-(127-15)<<23)>>13)
	}
	// In [0.5, 1) float32 numbers are 2^-24 apart, like binary16 subnormals:
	// the addition rounds, and its low bits are the result.
	return sign | uint16(math.Float32bits(math.Float32frombits(abs)+0.5)-0x3f000000)
}

// BF16ToFloat32 converts a bfloat16 number, the upper half of a float32; every
// bit pattern is kept.
func BF16ToFloat32(h uint16) float32 {
	return math.Float32frombits(uint32(h) << 16)
}

// Float32ToBF16 rounds to the nearest bfloat16 number, ties to even. NaN keeps
// its sign and the upper bits of its payload and becomes quiet.
func Float32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x0040
	}
	return uint16(roundBits(b, 16) >> 16)
}

// roundBits rounds b to a multiple of 2^n, ties to even. A carry out of the
// mantissa increments the exponent, which gives the next larger number.
func roundBits(b uint32, n uint) uint32 {
	return b + (1<<(n-1) - 1) + b>>n&1
}
