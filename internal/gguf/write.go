package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// Entry is a tensor to write.
type Entry struct {
	Name  string
	Type  Type
	Shape []int // outermost axis first
	// Write writes the bytes of the tensor.
	Write func(w io.Writer) error
}

func (e *Entry) tensor() Tensor { return Tensor{Name: e.Name, Type: e.Type, Shape: e.Shape} }

// Write writes a file with the keys and tensors in the given order. The file is
// complete on disk before it gets its name. The same arguments give the same bytes.
func Write(path string, keys []KeyValue, entries []Entry) error {
	f, err := fsatomic.Create(path)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	defer f.Abort()
	if err := encode(f, keys, entries); err != nil {
		return fmt.Errorf("gguf: %s: %w", path, err)
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	return nil
}

// encoder counts the bytes that it writes.
type encoder struct {
	w   *bufio.Writer
	n   int64
	err error
}

// Write implements io.Writer.
func (e *encoder) Write(b []byte) (int, error) {
	n, err := e.w.Write(b)
	e.n += int64(n)
	if e.err == nil {
		e.err = err
	}
	return n, err
}

func (e *encoder) put(v any) {
	if e.err == nil {
		e.err = binary.Write(e, binary.LittleEndian, v)
	}
}

func (e *encoder) text(s string) {
	e.put(uint64(len(s)))
	_, _ = e.Write([]byte(s)) // the encoder keeps the error
}

func (e *encoder) pad() {
	_, _ = e.Write(make([]byte, padding(e.n))) // the encoder keeps the error
}

// padding returns the number of bytes from n to the next aligned offset.
func padding(n int64) int64 { return (defaultAlignment - n%defaultAlignment) % defaultAlignment }

func encode(w io.Writer, keys []KeyValue, entries []Entry) error {
	e := &encoder{w: bufio.NewWriterSize(w, 1<<20)}
	_, _ = e.Write([]byte(magic)) // the encoder keeps the error
	e.put(uint32(version))
	e.put(uint64(len(entries)))
	e.put(uint64(len(keys)))
	for _, kv := range keys {
		e.text(kv.Key)
		e.value(kv)
	}
	offset := int64(0)
	for i := range entries {
		t := entries[i].tensor()
		n, _ := t.Type.BlockSize()
		if n == 0 || len(t.Shape) == 0 || len(t.Shape) > maxAxes || t.Shape[len(t.Shape)-1]%n != 0 {
			return fmt.Errorf("%w: tensor %q of type %v and shape %v", ErrFormat, t.Name, t.Type, t.Shape)
		}
		e.text(t.Name)
		e.put(uint32(len(t.Shape)))
		for j := len(t.Shape) - 1; j >= 0; j-- {
			e.put(uint64(t.Shape[j]))
		}
		e.put(uint32(t.Type))
		e.put(uint64(offset))
		offset += int64(t.Size())
		offset += padding(offset)
	}
	e.pad()
	for i := range entries {
		t, before := entries[i].tensor(), e.n
		if e.err != nil {
			return e.err
		}
		if err := entries[i].Write(e); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if e.n-before != int64(t.Size()) {
			return fmt.Errorf("%w: tensor %q: wrote %d bytes, expected %d", ErrFormat, t.Name, e.n-before, t.Size())
		}
		e.pad()
	}
	if e.err != nil {
		return e.err
	}
	return e.w.Flush()
}

// value writes the type and the value of a key.
func (e *encoder) value(kv KeyValue) {
	array := func(kind uint32, n int) {
		e.put(kindArray)
		e.put(kind)
		e.put(uint64(n))
	}
	scalar := func(kind uint32) { e.put(kind); e.put(kv.Value) }
	switch v := kv.Value.(type) {
	case uint8:
		scalar(kindU8)
	case int8:
		scalar(kindI8)
	case uint16:
		scalar(kindU16)
	case int16:
		scalar(kindI16)
	case uint32:
		scalar(kindU32)
	case int32:
		scalar(kindI32)
	case float32:
		scalar(kindF32)
	case bool:
		scalar(kindBool)
	case uint64:
		scalar(kindU64)
	case int64:
		scalar(kindI64)
	case float64:
		scalar(kindF64)
	case string:
		e.put(kindString)
		e.text(v)
	case []string:
		array(kindString, len(v))
		for _, s := range v {
			e.text(s)
		}
	case []int32:
		array(kindI32, len(v))
		e.put(v)
	case []uint32:
		array(kindU32, len(v))
		e.put(v)
	case []float32:
		array(kindF32, len(v))
		e.put(v)
	case []bool:
		array(kindBool, len(v))
		e.put(v)
	default:
		if e.err == nil {
			e.err = fmt.Errorf("%w: key %q: values of type %T are not written", ErrValue, kv.Key, v)
		}
	}
}

// U32 returns n as a metadata value, and the largest one for larger numbers.
func U32(n int) uint32 { return uint32(min(uint64(max(n, 0)), math.MaxUint32)) }
