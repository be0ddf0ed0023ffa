package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"unsafe"
)

// Read returns a copy of the elements of v: what As does in place, for data that
// starts anywhere and for machines of either byte order. It is checked like
// View.Use, and fails with ErrElementType where T does not fit v.DType.
func Read[T Element](v *View) ([]T, error) {
	var zero T
	elements := make([]T, v.Len()/int(unsafe.Sizeof(zero)))
	if err := ReadInto(v, elements); err != nil {
		return nil, err
	}
	return elements, nil
}

// ReadInto is Read into memory that is there already. It fails with ErrSize
// unless dst is as long as the tensor.
func ReadInto[T Element](v *View, dst []T) error { return readInto(v, dst, bigEndian) }

func readInto[T Element](v *View, dst []T, swap bool) error {
	if !fits[T](v.DType) {
		return v.elementError(dst)
	}
	data := bytesOf(dst)
	if len(data) != v.Len() {
		return v.formatError(ErrSize, byteCount(uint64(len(data))), byteCount(uint64(v.Len())))
	}
	if _, err := v.ReadAt(data, 0); err != nil {
		return err
	}
	if swap {
		swapBytes(data, orderedSize[T]())
	}
	return nil
}

// EntryOf describes elements for a writer, without a copy on little-endian
// machines. The dtype is the one of T's name, U8 for uint8, C64 for complex64
// and so on: set it to what else the elements are, such as BF16 for uint16.
// Without a shape the tensor is a scalar.
func EntryOf[T Element](name string, elements []T, shape ...int) Entry {
	return entryOf(name, elements, shape, bigEndian)
}

func entryOf[T Element](name string, elements []T, shape []int, swap bool) Entry {
	e := Entry{Name: name, DType: dtypeOf[T](), Shape: shape}
	data := bytesOf(elements)
	if !swap || orderedSize[T]() == 1 {
		e.Data = data
		return e
	}
	e.Write = func(w io.Writer) error {
		buffer := make([]byte, min(len(data), 64<<10))
		for rest := data; len(rest) > 0; {
			n := copy(buffer, rest)
			rest = rest[n:]
			swapBytes(buffer[:n], orderedSize[T]())
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
		}
		return nil
	}
	return e
}

// bytesOf is the memory of the elements.
func bytesOf[T Element](elements []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), len(elements)*int(unsafe.Sizeof(zero)))
}

// orderedSize is the size of what has a byte order: an element, or each of the
// two parts of a complex number.
func orderedSize[T Element]() int {
	var zero T
	if _, ok := any(zero).(complex64); ok {
		return 4
	}
	return int(unsafe.Sizeof(zero))
}

// swapBytes reverses the bytes of every number of the given size.
func swapBytes(data []byte, size int) {
	le := binary.LittleEndian
	switch size {
	case 2:
		for ; len(data) >= 2; data = data[2:] {
			le.PutUint16(data, bits.ReverseBytes16(le.Uint16(data)))
		}
	case 4:
		for ; len(data) >= 4; data = data[4:] {
			le.PutUint32(data, bits.ReverseBytes32(le.Uint32(data)))
		}
	case 8:
		for ; len(data) >= 8; data = data[8:] {
			le.PutUint64(data, bits.ReverseBytes64(le.Uint64(data)))
		}
	}
}

func (v *View) elementError(elements any) error {
	return fmt.Errorf("safetensors: %s: tensor %s: %v as %T: %w", v.file.path, quote(v.Name), v.DType, elements, ErrElementType)
}
