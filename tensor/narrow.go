package tensor

import "math"

// portableNarrow is the inverse of portableWiden: it converts src to elements
// of type d.
func portableNarrow(dst []byte, src []float32, d DType) {
	switch d {
	case F32:
		for i, f := range src {
			little.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case BF16:
		narrowBF16(dst, src)
	case F16:
		for i, f := range src {
			little.PutUint16(dst[2*i:], Float32ToF16(f))
		}
	case F8E5M2:
		dst = dst[:len(src)]
		for i, f := range src {
			dst[i] = Float32ToF8E5M2(f)
		}
	case F8E4M3:
		dst = dst[:len(src)]
		for i, f := range src {
			dst[i] = Float32ToF8E4M3(f)
		}
	case F64:
		for i, f := range src {
			little.PutUint64(dst[8*i:], math.Float64bits(float64(f)))
		}
	default:
		narrowIntegers(dst, src, d)
	}
}

// narrowBF16 converts four elements per store.
func narrowBF16(dst []byte, src []float32) {
	for len(src) >= 4 && len(dst) >= 8 {
		s := src[:4:4]
		little.PutUint64(dst, uint64(Float32ToBF16(s[0]))|uint64(Float32ToBF16(s[1]))<<16|
			uint64(Float32ToBF16(s[2]))<<32|uint64(Float32ToBF16(s[3]))<<48)
		dst, src = dst[8:], src[4:]
	}
	for i, f := range src {
		little.PutUint16(dst[2*i:], Float32ToBF16(f))
	}
}

func narrowIntegers(dst []byte, src []float32, d DType) {
	switch d {
	case Bool:
		for i, f := range src {
			dst[i] = truth(f != 0)
		}
	case U8:
		for i, f := range src {
			dst[i] = uint8(roundToInt(float64(f), 0, math.MaxUint8))
		}
	case I8:
		for i, f := range src {
			dst[i] = uint8(roundToInt(float64(f), math.MinInt8, math.MaxInt8))
		}
	case U16:
		for i, f := range src {
			little.PutUint16(dst[2*i:], uint16(roundToInt(float64(f), 0, math.MaxUint16)))
		}
	case I16:
		for i, f := range src {
			little.PutUint16(dst[2*i:], uint16(roundToInt(float64(f), math.MinInt16, math.MaxInt16)))
		}
	case U32:
		for i, f := range src {
			little.PutUint32(dst[4*i:], uint32(roundToInt(float64(f), 0, math.MaxUint32)))
		}
	case I32:
		for i, f := range src {
			little.PutUint32(dst[4*i:], uint32(roundToInt(float64(f), math.MinInt32, math.MaxInt32)))
		}
	case U64:
		for i, f := range src {
			little.PutUint64(dst[8*i:], roundToUint64(float64(f)))
		}
	case I64:
		for i, f := range src {
			little.PutUint64(dst[8*i:], uint64(roundToInt(float64(f), math.MinInt64, math.MaxInt64)))
		}
	}
}

// roundToInt rounds to nearest, ties to even, within [lo, hi]; NaN gives 0.
func roundToInt(f float64, lo, hi int64) int64 {
	switch x := math.RoundToEven(f); {
	case x != x:
		return 0
	case x <= float64(lo):
		return lo
	case x >= float64(hi): // float64(MaxInt64) is 2^63, the first integer out of range
		return hi
	default:
		return int64(x)
	}
}

func roundToUint64(f float64) uint64 {
	switch x := math.RoundToEven(f); {
	case x != x || x <= 0:
		return 0
	case x >= 1<<64:
		return math.MaxUint64
	default:
		return uint64(x)
	}
}
