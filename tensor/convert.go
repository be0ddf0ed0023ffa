package tensor

import (
	"encoding/binary"
	"fmt"
)

var little = binary.LittleEndian

// ToFloat32 converts len(dst) elements of type d from the little-endian bytes
// src, which need no alignment and must not overlap dst. Bool gives 0 or 1; F64
// and integers that float32 cannot hold are rounded to nearest, ties to even.
// All other types are exact: NaN stays NaN and becomes quiet, but that of BF16
// keeps its bits.
//
// It is serial: a caller with processors to spare splits the work. Results of
// 8 MiB and more are written past the cache, which is twice as fast as to fetch
// the old contents first, and leaves the cache to others.
//
// It fails with ErrDType for a type that is no number and with ErrLength where
// src does not hold exactly len(dst) elements; dst is then untouched.
func ToFloat32(dst []float32, src []byte, d DType) error {
	if err := checkLength(len(dst), len(src), d); err != nil {
		return err
	}
	widen(dst, src, d)
	return nil
}

// widen is ToFloat32 for lengths that fit.
func widen(dst []float32, src []byte, d DType) {
	if d == F32 && !bigEndian {
		copy(BytesOf(dst), src)
		return
	}
	n := vectorWiden(dst, src, d)
	portableWiden(dst[n:], src[n*d.Size():], d)
}

// FromFloat32 converts src to elements of type d, little-endian in dst, which
// needs no alignment and must not overlap src. What a type cannot hold becomes:
//
//   - in a float, the nearest number, ties to even. Beyond the largest number
//     F16, BF16 and F8_E5M2 go on to infinity; F8_E4M3 stays at the largest. NaN
//     stays NaN and is quiet. See the functions for single numbers, such as
//     Float32ToF8E4M3.
//   - in an integer, the nearest, ties to even, so that what is out of range
//     becomes the smallest or the largest; NaN becomes 0;
//   - in a Bool, whether it differs from 0.
//
// It is serial as ToFloat32 is, and fails with ErrDType for a type that is no
// number and with ErrLength where dst does not have room for exactly len(src)
// elements; dst is then untouched.
func FromFloat32(dst []byte, src []float32, d DType) error {
	if err := checkLength(len(src), len(dst), d); err != nil {
		return err
	}
	narrow(dst, src, d)
	return nil
}

// narrow is FromFloat32 for lengths that fit.
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
