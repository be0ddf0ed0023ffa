package safetensors

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Element is a Go type whose memory layout is that of a DType.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64 | complex64
}

// As returns the elements of v in place. The 8-bit types other than I8 are seen
// as uint8, F16 and BF16 as uint16, C64 as complex64, every other type as the
// Go type of its name; F4 and F6, which share bytes, have no view but Bytes. What
// View.Bytes says of the life of the bytes holds here too.
//
// It fails with ErrElementType where T does not fit v.DType, with ErrClosed,
// where Cast fails, and, for a View that is not in place, with ErrFault. Read
// copies where As cannot.
func As[T Element](v *View) ([]T, error) {
	if !fits[T](v.DType) {
		return nil, v.elementError([]T{})
	}
	data, err := v.pinned()
	if err != nil {
		return nil, err
	}
	elements, err := Cast[T](data)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: tensor %s: %w", v.file.path, quote(v.Name), err)
	}
	return elements, nil
}

// Cast returns little-endian bytes as elements, in place: what turns the
// argument of View.Use into numbers. It fails with ErrAlignment where data does
// not start on a multiple of T's size (a file may place a tensor anywhere: then
// use Read), with ErrSize where it does not end on one, and with ErrByteOrder on
// big-endian machines.
func Cast[T Element](data []byte) ([]T, error) {
	var zero T
	size := unsafe.Sizeof(zero)
	if bigEndian && size > 1 {
		return nil, fmt.Errorf("view as %T: %w", zero, ErrByteOrder)
	}
	if len(data)%int(size) != 0 {
		return nil, fmt.Errorf("%d bytes viewed as %T: %w", len(data), zero, ErrSize)
	}
	if len(data) == 0 {
		return []T{}, nil
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	if rest := uintptr(p) % unsafe.Alignof(zero); rest != 0 {
		return nil, fmt.Errorf("%d bytes past a multiple of %d, viewed as %T: %w", rest, unsafe.Alignof(zero), zero, ErrAlignment)
	}
	return unsafe.Slice((*T)(p), len(data)/int(size)), nil
}

// dtypeOf is the type of T's name.
func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case uint8:
		return U8
	case int8:
		return I8
	case uint16:
		return U16
	case int16:
		return I16
	case uint32:
		return U32
	case int32:
		return I32
	case uint64:
		return U64
	case int64:
		return I64
	case float32:
		return F32
	case float64:
		return F64
	default:
		return C64
	}
}

func fits[T Element](d DType) bool {
	switch t := dtypeOf[T](); t {
	case U8:
		return d.Bits() == 8 && d != I8
	case U16:
		return d == U16 || d == F16 || d == BF16
	default:
		return d == t
	}
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1
