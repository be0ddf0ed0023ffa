package tensor

import (
	"fmt"
	"math"
	"unsafe"
)

// Convert converts all elements of type from in the little-endian bytes src to
// type to, in dst. Neither needs alignment; they must not overlap.
//
// Each element is rounded once to the nearest value of the other type, by the
// rules of FromFloat32; I64 and F64 keep all their bits in between. Integers
// out of range become the smallest or the largest value. (PyTorch and NumPy
// reduce such numbers modulo 2^n, and truncate floats that become integers.) If
// the types are equal, the bytes are copied.
//
// Like ToFloat32 it runs on one goroutine, and it allocates nothing. It fails
// with ErrDType for a type that is not numeric, and with ErrLength if src is
// not an integral number of elements or dst does not have exactly the size that
// these take; dst is then unchanged.
func Convert(dst []byte, to DType, src []byte, from DType) error {
	if from.Bits() == 0 || to.Bits() == 0 {
		return fmt.Errorf("tensor: convert %v to %v: %w", from, to, ErrDType)
	}
	n := len(src) / from.Size()
	if len(src)%from.Size() != 0 {
		return fmt.Errorf("tensor: convert %d bytes, no whole number of elements of %v: %w", len(src), from, ErrLength)
	}
	if err := checkLength(n, len(dst), to); err != nil {
		return err
	}
	if from == to {
		copy(dst, src)
		return nil
	}
	if wide, ok := inPlace(dst); ok && to == F32 {
		widen(wide, src, from)
		return nil
	}
	if wide, ok := inPlace(src); ok && from == F32 {
		narrow(dst, wide, to)
		return nil
	}
	for at := 0; at < n; at += chunk {
		k := min(chunk, n-at)
		convertChunk(part(dst, at, k, to), to, part(src, at, k, from), from, k)
	}
	return nil
}

// inPlace returns data as float32 numbers without a copy, if the machine allows
// it.
func inPlace(data []byte) ([]float32, bool) {
	p := unsafe.Pointer(unsafe.SliceData(data))
	if bigEndian || uintptr(p)%4 != 0 {
		return nil, false
	}
	return unsafe.Slice((*float32)(p), len(data)/4), true
}

// ToFloat64 converts len(dst) elements of type d from the little-endian bytes
// src, which need no alignment. All types are exact except I64 and U64, which
// are rounded to nearest, ties to even. It fails as ToFloat32 does.
func ToFloat64(dst []float64, src []byte, d DType) error {
	if err := checkLength(len(dst), len(src), d); err != nil {
		return err
	}
	for at := 0; at < len(dst); at += chunk {
		var b [8 * chunk]byte
		out := dst[at:min(at+chunk, len(dst))]
		raw := b[:8*len(out)]
		if s := part(src, at, len(out), d); d == F64 {
			raw = s
		} else {
			convertChunk(raw, F64, s, d, len(out))
		}
		for i := range out {
			out[i] = math.Float64frombits(little.Uint64(raw[8*i:]))
		}
	}
	return nil
}

// chunk is the number of elements that are converted at a time through a third
// type. Chunks fit on the stack and in the first-level cache.
const chunk = 1024

// part returns the bytes of k elements starting at element at.
func part(data []byte, at, k int, d DType) []byte {
	return data[at*d.Size():][:k*d.Size()]
}

// convertChunk converts k elements through a type that represents them all.
func convertChunk(dst []byte, to DType, src []byte, from DType, k int) {
	if !from.fitsFloat32() && (to == F64 || to.isInteger() && !(from == F64 && to == Bool)) {
		convertWide(dst, to, src, from, k)
		return
	}
	var buffer [chunk]float32
	x := buffer[:k]
	if from.fitsFloat32() || to == F32 {
		widen(x, src, from)
	} else {
		oddFloat32(x, src, from)
	}
	narrow(dst, x, to)
}

// fitsFloat32 reports whether float32 represents all numbers of type d.
func (d DType) fitsFloat32() bool { return d.Bits() <= 16 || d == F32 }
