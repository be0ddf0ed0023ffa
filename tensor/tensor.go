package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// Errors wrapped by the functions of this package.
var (
	ErrDType     = errors.New("wrong element type")
	ErrShape     = errors.New("bad shape")
	ErrLength    = errors.New("wrong length")
	ErrAlignment = errors.New("misaligned data")
	ErrByteOrder = errors.New("little-endian data cannot be viewed in place on a big-endian machine")
)

// Tensor is a dense array in host memory: its elements in row-major (C) order,
// little-endian as in a file, in contiguous bytes. The tensor neither owns nor
// copies Data, which may be part of a mapped file, for example.
//
// The zero value is empty and fails Check.
type Tensor struct {
	DType DType
	Shape []int // empty for a scalar
	Data  []byte
}

// New returns a tensor of zeros. The data is aligned to 8 bytes, so View never
// fails because of alignment.
func New(d DType, shape ...int) (Tensor, error) {
	size, err := byteSize(d, shape)
	if err != nil {
		return Tensor{}, err
	}
	return Tensor{DType: d, Shape: append([]int(nil), shape...), Data: alignedBytes(size)}, nil
}

// FromFloat32s returns an F32 tensor with a copy of values.
func FromFloat32s(values []float32, shape ...int) (Tensor, error) {
	t, err := New(F32, shape...)
	if err != nil {
		return Tensor{}, err
	}
	if n := len(t.Data) / 4; n != len(values) {
		return Tensor{}, fmt.Errorf("tensor: shape %v has %d elements, %d values given: %w", shape, n, len(values), ErrLength)
	}
	return t, FromFloat32(t.Data, values, F32)
}

// NumElements returns the product of the dimensions, 1 for a scalar. It fails
// with ErrShape for a negative dimension or a product that exceeds an int.
func NumElements(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("tensor: dimension %d in shape %v is negative: %w", d, shape, ErrShape)
		}
		if d != 0 && n > math.MaxInt/d {
			return 0, fmt.Errorf("tensor: shape %v has more than %d elements: %w", shape, math.MaxInt, ErrShape)
		}
		n *= d
	}
	return n, nil
}

// NumElements returns the number of elements in t's shape, 0 for an invalid
// shape.
func (t Tensor) NumElements() int {
	n, err := NumElements(t.Shape)
	if err != nil {
		return 0
	}
	return n
}

// Check checks that dtype, shape and length of the data match.
func (t Tensor) Check() error {
	size, err := byteSize(t.DType, t.Shape)
	if err != nil {
		return err
	}
	if len(t.Data) != size {
		return fmt.Errorf("tensor: %v%v takes %d bytes, found %d: %w", t.DType, t.Shape, size, len(t.Data), ErrLength)
	}
	return nil
}

// Float32s returns a new slice with the elements of t, converted to float32 by
// the rules of ToFloat32.
func (t Tensor) Float32s() ([]float32, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	values := make([]float32, t.NumElements())
	return values, ToFloat32(values, t.Data, t.DType)
}

// Convert returns a new tensor of type d with the elements of t, converted by
// the rules of the function Convert.
func (t Tensor) Convert(d DType) (Tensor, error) {
	out, err := New(d, t.Shape...)
	if err != nil {
		return Tensor{}, err
	}
	if err := t.Check(); err != nil {
		return Tensor{}, err
	}
	return out, Convert(out.Data, d, t.Data, t.DType)
}

// Element is a Go type with the memory layout of a DType.
type Element interface {
	uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}

// View returns the elements of t in place, without a copy. F16 and BF16 become uint16; U8, Bool and the 8-bit floats
// uint8; every other type the Go type of the same name. The view shares t's memory and must not be written to if that
// memory is read-only.
//
// It fails with ErrDType if T does not match t.DType, which is always so for types smaller than a byte, with ErrLength
// if the length of the data does not match the shape, with ErrAlignment if the data does not start at a multiple of T's
// size (files may place tensors anywhere), and with ErrByteOrder on big-endian machines. ToFloat32 works in the last
// two cases.
func View[T Element](t Tensor) ([]T, error) {
	if !fits[T](t.DType) {
		var zero T
		return nil, fmt.Errorf("tensor: %v viewed as %T: %w", t.DType, zero, ErrDType)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	return cast[T](t.Data)
}

func fits[T Element](d DType) bool {
	var zero T
	switch any(zero).(type) {
	case uint8:
		return d == U8 || d == Bool || d.IsFloat() && d.Bits() == 8
	case int8:
		return d == I8
	case uint16:
		return d == U16 || d == F16 || d == BF16
	case int16:
		return d == I16
	case uint32:
		return d == U32
	case int32:
		return d == I32
	case uint64:
		return d == U64
	case int64:
		return d == I64
	case float32:
		return d == F32
	case float64:
		return d == F64
	}
	return false
}

func cast[T Element](data []byte) ([]T, error) {
	var zero T
	size := unsafe.Sizeof(zero)
	if bigEndian && size > 1 {
		return nil, fmt.Errorf("tensor: view as %T: %w", zero, ErrByteOrder)
	}
	if len(data) == 0 {
		return []T{}, nil
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	if off := uintptr(p) % size; off != 0 {
		return nil, fmt.Errorf("tensor: data starts %d bytes past a multiple of %d, the size of %T: %w", off, size, zero, ErrAlignment)
	}
	return unsafe.Slice((*T)(p), len(data)/int(size)), nil
}

func byteSize(d DType, shape []int) (int, error) {
	if d.Size() == 0 && !d.Quantized() {
		return 0, fmt.Errorf("tensor: dtype %v: %w", d, ErrDType)
	}
	n, err := NumElements(shape)
	if err != nil {
		return 0, err
	}
	// The largest array takes half the address space; beyond that the Go
	// runtime panics instead of returning an error.
	if n > math.MaxInt/2/max(d.Size(), 1) {
		return 0, fmt.Errorf("tensor: %v%v exceeds the address space: %w", d, shape, ErrShape)
	}
	return d.Bytes(n), nil
}

// alignedBytes returns n zero bytes, aligned to 8 bytes.
func alignedBytes(n int) []byte {
	if n == 0 {
		return []byte{}
	}
	words := make([]uint64, n/8+(n%8+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// BytesOf returns the memory of x, in the byte order of the machine. Tensors
// are little-endian, so on big-endian machines the bytes are not valid tensor
// data.
func BytesOf[T int32 | uint32 | float32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
