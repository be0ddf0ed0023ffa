package gemm

import (
	"math"
)

// widenBF16 is the float32 whose upper half is h.
func widenBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// widenF16 is the value of the half-precision float h. Moving its 15 bits of
// exponent and mantissa to their place in a float32 leaves the exponent 112
// too small; the product with 2¹¹² corrects it exactly, for subnormals too.
func widenF16(h uint16) float32 {
	const inf = 0x7c00
	sign, mag := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	if mag >= inf {
		return math.Float32frombits(sign | 0x7f800000 | (mag-inf)<<13)
	}
	scaled := math.Float32frombits(mag<<13) * 0x1p112
	return math.Float32frombits(sign | math.Float32bits(scaled))
}
