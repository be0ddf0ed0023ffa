package safetensors

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Element is a Go type with the memory layout of a DType.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64 | complex64
}

// As returns the elements of v in place. The 8-bit types other than I8 become
// uint8, F16 and BF16 uint16, C64 complex64, and every other type the Go type of
// the same name. F4 and the F6 types, whose elements share bytes, are available
// only through Bytes. The bytes live as long as described at View.Bytes.
//
// It fails with ErrElementType if T does not match v.DType, with ErrClosed, when
// Cast fails, and with ErrFault for a View that is not in place. Use Read when As
// fails because of alignment or byte order.
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

// Cast returns little-endian bytes as elements of T, in place, such as the
// argument of View.WithBytes. It fails with ErrAlignment if data does not start at a
// multiple of T's size (a file may place a tensor anywhere; use Read then), with
// ErrSize if the length is not such a multiple, and with ErrByteOrder on
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

// dtypeOf returns the dtype named like T.
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
