package vec

import "math"

// WidenF16 converts IEEE half precision, given by its bits, exactly.
func WidenF16(dst []float32, src []uint16) { active.widenF16(dst, src[:len(dst)]) }

// WidenBF16 converts bfloat16, given by its bits, exactly.
func WidenBF16(dst []float32, src []uint16) { active.widenBF16(dst, src[:len(dst)]) }

// NarrowF16 rounds to half precision, to nearest, ties to even; what is too
// large becomes infinite, what is too small a subnormal or zero.
func NarrowF16(dst []uint16, src []float32) { active.narrowF16(dst, src[:len(dst)]) }

// NarrowBF16 rounds to bfloat16, to nearest, ties to even.
func NarrowBF16(dst []uint16, src []float32) { active.narrowBF16(dst, src[:len(dst)]) }

func portableWidenBF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(src[i]) << 16)
	}
}

func portableNarrowBF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		b := math.Float32bits(src[i])
		if b&0x7fffffff > 0x7f800000 {
			dst[i] = uint16(b>>16) | 0x40 // quiet, so that it stays a NaN
			continue
		}
		dst[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
	}
}

func portableWidenF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = widenF16(src[i])
	}
}

func portableNarrowF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = narrowF16(src[i])
	}
}

func widenF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mantissa := uint32(h&0x3ff) << 13
	switch e := uint32(h >> 10 & 0x1f); e {
	case 0:
		// Zero or subnormal: mantissa·2^-24, exact in float32.
		f := float32(h&0x3ff) * 0x1p-24
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		if mantissa != 0 {
			mantissa |= 1 << 22 // quiet, as the instruction does
		}
		return math.Float32frombits(sign | 0x7f800000 | mantissa)
	default:
		return math.Float32frombits(sign | (e+127-15)<<23 | mantissa)
	}
}

func narrowF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // 65520, halfway from the largest to the next
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: a subnormal
		// Adding 0.5 puts the last bit of a subnormal, 2^-24, at the last bit
		// of the float32, which rounds it.
		v := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(v)-0x3f000000)
	}
	b += 0xfff + b>>13&1
	return sign | uint16(b>>13-(127-15)<<10)
}
