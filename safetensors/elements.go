package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"unsafe"
)

// Read returns a copy of the elements of v. Unlike As, it accepts any alignment
// and works on machines of either byte order. It reports read errors as View.WithBytes
// does and fails with ErrElementType if T does not match v.DType.
func Read[T Element](v *View) ([]T, error) {
	var zero T
	elements := make([]T, v.Len()/int(unsafe.Sizeof(zero)))
	if err := ReadInto(v, elements); err != nil {
		return nil, err
	}
	return elements, nil
}

// ReadInto copies the elements of v into dst, like Read without the allocation.
// It fails with ErrSize unless dst is as long as the tensor.
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

// EntryOf returns an Entry for elements, without a copy on little-endian
// machines. Its dtype is the one named like T: U8 for uint8, C64 for complex64
// and so on. Set the dtype if the elements represent another type, such as BF16
// for uint16. Without a shape the tensor is a scalar.
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

// bytesOf returns the memory of the elements as bytes.
func bytesOf[T Element](elements []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(elements))), len(elements)*int(unsafe.Sizeof(zero)))
}

// orderedSize returns the number of bytes that a byte-order conversion
// reverses: the size of an element, or of each half of a complex number.
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
