package tensor

import (
	"encoding/binary"
	"fmt"
)

var little = binary.LittleEndian

// ToFloat32 converts len(dst) elements of type d from the little-endian bytes
// src, which need no alignment and must not overlap dst. Bool gives 0 or 1.
// F64, and integers that float32 cannot represent, are rounded to nearest, ties
// to even. All other conversions are exact: NaN stays NaN and becomes quiet,
// except that BF16 keeps its bits.
//
// It runs on one goroutine; callers with several CPUs split the work. Results
// of 8 MiB and more bypass the cache, which is twice as fast as fetching the
// old contents first and leaves the cache to other data.
//
// It fails with ErrDType for a type that is not numeric and with ErrLength if
// src does not hold exactly len(dst) elements; dst is then unchanged.
func ToFloat32(dst []float32, src []byte, d DType) error {
	if err := checkLength(len(dst), len(src), d); err != nil {
		return err
	}
	widen(dst, src, d)
	return nil
}

// widen implements ToFloat32 for matching lengths.
func widen(dst []float32, src []byte, d DType) {
	if d == F32 && !bigEndian {
		copy(BytesOf(dst), src)
		return
	}
	n := vectorWiden(dst, src, d)
	portableWiden(dst[n:], src[n*d.Size():], d)
}

// FromFloat32 converts src to elements of type d, little-endian in dst, which
// needs no alignment and must not overlap src. Values are rounded as follows:
//
//   - For a float: to the nearest number, ties to even. Values beyond the
//     largest number become infinite in F16, BF16 and F8_E5M2; F8_E4M3
//     saturates. NaN stays NaN and is quiet. See the functions for single
//     numbers, such as Float32ToF8E4M3.
//   - For an integer: to the nearest, ties to even; values out of range become
//     the smallest or the largest integer, NaN becomes 0.
//   - For a Bool: to whether the value differs from 0.
//
// Like ToFloat32 it runs on one goroutine. It fails with ErrDType for a type
// that is not numeric and with ErrLength if dst does not have space for exactly
// len(src) elements; dst is then unchanged.
func FromFloat32(dst []byte, src []float32, d DType) error {
	if err := checkLength(len(src), len(dst), d); err != nil {
		return err
	}
	narrow(dst, src, d)
	return nil
}

// narrow implements FromFloat32 for matching lengths.
func narrow(dst []byte, src []float32, d DType) {
	if d == F32 && !bigEndian {
		copy(dst, BytesOf(src))
		return
	}
	n := vectorNarrow(dst, src, d)
	portableNarrow(dst[n*d.Size():], src[n:], d)
}

func checkLength(elements, bytes int, d DType) error {
	size := d.Size()
	if size == 0 {
		return fmt.Errorf("tensor: convert %v: %w", d, ErrDType)
	}
	if bytes%size != 0 || bytes/size != elements {
		return fmt.Errorf("tensor: %d elements of %v take %d bytes each, found %d bytes in all: %w", elements, d, size, bytes, ErrLength)
	}
	return nil
}
