package tensor

import (
	"math"
	"math/bits"
)

// convertWide converts k elements of a type with more bits than float32
// represents to an integer type or F64.
func convertWide(dst []byte, to DType, src []byte, from DType, k int) {
	switch {
	case from == U64 && to == F64:
		for i := range k {
			little.PutUint64(dst[8*i:], math.Float64bits(float64(little.Uint64(src[8*i:]))))
		}
	case from == F64 && to == U64:
		for i := range k {
			little.PutUint64(dst[8*i:], roundToUint64(math.Float64frombits(little.Uint64(src[8*i:]))))
		}
	default:
		var buffer [chunk]int64
		x := buffer[:k]
		loadIntegers(x, src, from)
		storeIntegers(dst, x, to)
	}
}

// loadIntegers reads 32-bit or 64-bit numbers. U64 and F64 values out of range
// are replaced by the nearest int64, which makes a difference only for the type
// U64 itself.
func loadIntegers(dst []int64, src []byte, d DType) {
	switch d {
	case I32:
		for i := range dst {
			dst[i] = int64(int32(little.Uint32(src[4*i:])))
		}
	case U32:
		for i := range dst {
			dst[i] = int64(little.Uint32(src[4*i:]))
		}
	case I64:
		for i := range dst {
			dst[i] = int64(little.Uint64(src[8*i:]))
		}
	case U64:
		for i := range dst {
			dst[i] = int64(min(little.Uint64(src[8*i:]), math.MaxInt64))
		}
	case F64:
		for i := range dst {
			dst[i] = roundToInt(math.Float64frombits(little.Uint64(src[8*i:])), math.MinInt64, math.MaxInt64)
		}
	}
}

// storeIntegers writes numbers as integers of type d, or as F64.
func storeIntegers(dst []byte, src []int64, d DType) {
	switch d {
	case Bool:
		for i, x := range src {
			dst[i] = truth(x != 0)
		}
	case U8:
		for i, x := range src {
			dst[i] = uint8(min(max(x, 0), math.MaxUint8))
		}
	case I8:
		for i, x := range src {
			dst[i] = uint8(min(max(x, math.MinInt8), math.MaxInt8))
		}
	case U16:
		for i, x := range src {
			little.PutUint16(dst[2*i:], uint16(min(max(x, 0), math.MaxUint16)))
		}
	case I16:
		for i, x := range src {
			little.PutUint16(dst[2*i:], uint16(min(max(x, math.MinInt16), math.MaxInt16)))
		}
	case U32:
		for i, x := range src {
			little.PutUint32(dst[4*i:], uint32(min(max(x, 0), math.MaxUint32)))
		}
	case I32:
		for i, x := range src {
			little.PutUint32(dst[4*i:], uint32(min(max(x, math.MinInt32), math.MaxInt32)))
		}
	case U64:
		for i, x := range src {
			little.PutUint64(dst[8*i:], uint64(max(x, 0)))
		}
	case I64:
		for i, x := range src {
			little.PutUint64(dst[8*i:], uint64(x))
		}
	case F64:
		for i, x := range src {
			little.PutUint64(dst[8*i:], math.Float64bits(float64(x)))
		}
	}
}

// oddFloat32 converts 32-bit or 64-bit numbers to float32, rounded to odd: an
// inexact value becomes the neighbor whose last bit is 1. Rounding the result
// again, to a type with fewer bits, then gives the same value as rounding once.
// Method: Boldo and Melquiond, "When double rounding is odd", 2005.
func oddFloat32(dst []float32, src []byte, d DType) {
	switch d {
	case I32:
		for i := range dst {
			dst[i] = oddInt(int64(int32(little.Uint32(src[4*i:]))))
		}
	case U32:
		for i := range dst {
			dst[i] = oddUint(uint64(little.Uint32(src[4*i:])))
		}
	case I64:
		for i := range dst {
			dst[i] = oddInt(int64(little.Uint64(src[8*i:])))
		}
	case U64:
		for i := range dst {
			dst[i] = oddUint(little.Uint64(src[8*i:]))
		}
	case F64:
		for i := range dst {
			dst[i] = oddFloat(math.Float64frombits(little.Uint64(src[8*i:])))
		}
	}
}

func oddInt(x int64) float32 {
	if x < 0 {
		return -oddUint(uint64(-x))
	}
	return oddUint(uint64(x))
}

func oddUint(x uint64) float32 {
	if drop := bits.Len64(x) - 24; drop > 0 {
		kept := x >> drop
		if kept<<drop != x {
			kept |= 1
		}
		x = kept << drop
	}
	return float32(x)
}

func oddFloat(x float64) float32 {
	f := float32(x)
	if wide := float64(f); wide != x && x == x {
		b := math.Float32bits(f)
		switch {
		case b&1 == 1:
		case math.Abs(wide) > math.Abs(x):
			b--
		default:
			b++
		}
		f = math.Float32frombits(b)
	}
	return f
}
