package tensor

import "math"

// F8E5M2ToFloat32 widens an 8-bit float of 5 exponent and 2 mantissa bits, the
// upper half of a binary16; every value is exact.
// Format: "FP8 Formats for Deep Learning", arXiv 2209.05433.
func F8E5M2ToFloat32(h uint8) float32 {
	return f8e5m2[h]
}

// Float32ToF8E5M2 rounds to the nearest F8_E5M2 number, ties to even; from
// 61440 on the result is infinite. NaN keeps its sign and becomes 0x7F.
func Float32ToF8E5M2(f float32) uint8 {
	b := math.Float32bits(f)
	sign := uint8(b>>24) & 0x80
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7f
	case abs >= 0x47700000: // 61440
		return sign | 0x7c
	case abs >= 0x38800000: // 2^-14, the smallest normal number
		return sign | uint8((roundBits(abs, 21)-(127-15)<<23)>>21)
	}
	// In [128, 256) float32 numbers are 2^-16 apart, as the subnormals are.
	return sign | uint8(math.Float32bits(math.Float32frombits(abs)+128)-0x43000000)
}

// F8E4M3ToFloat32 widens an 8-bit float of 4 exponent and 3 mantissa bits, the
// "fn" kind: no infinities, NaN at 0x7F and 0xFF only, largest number 448.
// Every value is exact.
func F8E4M3ToFloat32(h uint8) float32 {
	return f8e4m3[h]
}

// Float32ToF8E4M3 rounds to the nearest F8_E4M3 number, ties to even. The
// format has no infinity: what rounds beyond 448 becomes NaN, as in PyTorch.
func Float32ToF8E4M3(f float32) uint8 {
	b := math.Float32bits(f)
	sign := uint8(b>>24) & 0x80
	abs := b & 0x7fffffff
	switch {
	case abs > 0x43e80000: // 464, half-way between 448 and what would be 480
		return sign | 0x7f
	case abs >= 0x3c800000: // 2^-6, the smallest normal number
		return sign | uint8((roundBits(abs, 20)-(127-7)<<23)>>20)
	}
	// In [2^14, 2^15) float32 numbers are 2^-9 apart, as the subnormals are.
	return sign | uint8(math.Float32bits(math.Float32frombits(abs)+0x1p14)-0x46800000)
}

var f8e5m2 = func() (table [256]float32) {
	for i := range table {
		table[i] = F16ToFloat32(uint16(i) << 8)
	}
	return table
}()

var f8e4m3 = func() (table [256]float32) {
	for i := range table {
		sign, abs := uint32(i)&0x80<<24, uint32(i)&0x7f
		switch {
		case abs == 0x7f:
			table[i] = math.Float32frombits(sign | 0x7fc00000)
		case abs >= 8:
			table[i] = math.Float32frombits(sign | (abs<<20 + (127-7)<<23))
		default:
			table[i] = math.Float32frombits(sign | math.Float32bits(float32(abs)*0x1p-9))
		}
	}
	return table
}()
