//go:build amd64 && !purego

package tensor

func widenAVX512(dst, src *byte, n int, stream bool, d DType) bool {
	switch d {
	case F8E5M2:
		widenF8E5M2AVX512(dst, src, n, stream)
	case F8E4M3:
		widenF8E4M3AVX512(dst, src, n, stream)
	case F16:
		widenF16AVX512(dst, src, n, stream)
	case BF16:
		widenBF16AVX512(dst, src, n, stream)
	case F64:
		widenF64AVX512(dst, src, n, stream)
	case Bool:
		widenBoolAVX512(dst, src, n, stream)
	case U8:
		widenU8AVX512(dst, src, n, stream)
	case I8:
		widenI8AVX512(dst, src, n, stream)
	case U16:
		widenU16AVX512(dst, src, n, stream)
	case I16:
		widenI16AVX512(dst, src, n, stream)
	case I32:
		widenI32AVX512(dst, src, n, stream)
	case U32:
		widenU32AVX512(dst, src, n, stream)
	case I64:
		widenI64AVX512(dst, src, n, stream)
	case U64:
		widenU64AVX512(dst, src, n, stream)
	default:
		return false
	}
	return true
}

func narrowAVX512(dst, src *byte, n int, stream bool, d DType) bool {
	switch d {
	case F8E5M2:
		narrowF8E5M2AVX512(dst, src, n, stream)
	case F8E4M3:
		narrowF8E4M3AVX512(dst, src, n, stream)
	case F16:
		narrowF16AVX512(dst, src, n, stream)
	case BF16:
		narrowBF16AVX512(dst, src, n, stream)
	case F64:
		narrowF64AVX512(dst, src, n, stream)
	case Bool:
		narrowBoolAVX512(dst, src, n, stream)
	case U8:
		narrowU8AVX512(dst, src, n, stream)
	case I8:
		narrowI8AVX512(dst, src, n, stream)
	case U16:
		narrowU16AVX512(dst, src, n, stream)
	case I16:
		narrowI16AVX512(dst, src, n, stream)
	case I32:
		narrowI32AVX512(dst, src, n, stream)
	case U32:
		narrowU32AVX512(dst, src, n, stream)
	case I64:
		narrowI64AVX512(dst, src, n, stream)
	case U64:
		narrowU64AVX512(dst, src, n, stream)
	default:
		return false
	}
	return true
}

func widenAVX2(dst, src *byte, n int, stream bool, d DType) bool {
	switch d {
	case F8E5M2:
		widenF8E5M2AVX2(dst, src, n, stream)
	case F8E4M3:
		widenF8E4M3AVX2(dst, src, n, stream)
	case F16:
		widenF16AVX2(dst, src, n, stream)
	case BF16:
		widenBF16AVX2(dst, src, n, stream)
	case F64:
		widenF64AVX2(dst, src, n, stream)
	case Bool:
		widenBoolAVX2(dst, src, n, stream)
	case U8:
		widenU8AVX2(dst, src, n, stream)
	case I8:
		widenI8AVX2(dst, src, n, stream)
	case U16:
		widenU16AVX2(dst, src, n, stream)
	case I16:
		widenI16AVX2(dst, src, n, stream)
	case I32:
		widenI32AVX2(dst, src, n, stream)
	default:
		return false
	}
	return true
}

func narrowAVX2(dst, src *byte, n int, stream bool, d DType) bool {
	switch d {
	case F8E5M2:
		narrowF8E5M2AVX2(dst, src, n, stream)
	case F8E4M3:
		narrowF8E4M3AVX2(dst, src, n, stream)
	case F16:
		narrowF16AVX2(dst, src, n, stream)
	case BF16:
		narrowBF16AVX2(dst, src, n, stream)
	case F64:
		narrowF64AVX2(dst, src, n, stream)
	case Bool:
		narrowBoolAVX2(dst, src, n, stream)
	case U8:
		narrowU8AVX2(dst, src, n, stream)
	case I8:
		narrowI8AVX2(dst, src, n, stream)
	case U16:
		narrowU16AVX2(dst, src, n, stream)
	case I16:
		narrowI16AVX2(dst, src, n, stream)
	case I32:
		narrowI32AVX2(dst, src, n, stream)
	default:
		return false
	}
	return true
}
