package safetensors

import (
	"fmt"
	"io"
	"runtime/debug"
)

// View is one tensor of a file, or some of its rows: row-major (C order),
// little-endian, without strides, placed anywhere in memory. As long as a View
// is reachable, bytes that it has handed out are valid.
//
// It is safe for concurrent use.
type View struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar

	file  *File
	begin int64  // where in the file data begins
	data  []byte // in the file's mapping
	dims  [4]int // room for most shapes
}

// Len is the size of the tensor in bytes.
func (v *View) Len() int { return len(v.data) }

// Extent tells where the bytes lie: in which file, from where on, how many.
func (v *View) Extent() (path string, offset, length int64) {
	return v.file.path, v.begin, int64(len(v.data))
}

// Use calls fn with the bytes of the tensor, which are valid until fn returns,
// and returns what fn returns. While fn runs the file cannot be closed.
//
// A page that cannot be read (the file has been cut short, the disk fails) ends
// fn, and Use fails with ErrFault. That holds for what fn does itself, calls
// included; goroutines that it starts crash the program.
func (v *View) Use(fn func(data []byte) error) (err error) {
	m := v.file.mapping
	if !m.acquire() {
		return v.file.errClosed()
	}
	defer m.release()
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		r := recover()
		if r == nil {
			return
		}
		at, ok := m.faultOffset(r)
		if !ok {
			panic(r) // fn's own
		}
		err = fmt.Errorf("safetensors: %s: tensor %s: byte %d of the file: %w", v.file.path, quote(v.Name), at, ErrFault)
	}()
	return fn(v.data)
}

// Bytes returns the bytes of the tensor in place, nil where the file has been
// closed. They are valid as long as v is reachable: keep v, and end the last
// access with runtime.KeepAlive(v) where nothing else refers to it. They must
// not be written to. Reading a page that cannot be read crashes the program;
// Use turns that into an error.
func (v *View) Bytes() []byte {
	if !v.file.mapping.pin() {
		return nil
	}
	return v.data
}

// ReadAt copies bytes of the tensor, from the offset within the tensor on, as
// io.ReaderAt. It is checked like Use.
func (v *View) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("safetensors: %s: tensor %s: read at %d: %w", v.file.path, quote(v.Name), off, ErrRange)
	}
	err = v.Use(func(data []byte) error {
		if off < int64(len(data)) {
			n = copy(p, data[off:])
		}
		if n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteTo writes the bytes of the tensor to w, as io.WriterTo. It is checked
// like Use.
func (v *View) WriteTo(w io.Writer) (n int64, err error) {
	err = v.Use(func(data []byte) error {
		written, err := w.Write(data)
		n = int64(written)
		return err
	})
	return n, err
}

// Rows returns the part of the tensor from row from up to but not including row
// to of its first dimension, in place. It fails with ErrRange for a scalar and
// for rows that do not exist, and with ErrPartialByte where packed elements
// make a row begin within a byte.
func (v *View) Rows(from, to int) (*View, error) {
	if len(v.Shape) == 0 || from < 0 || from > to || to > v.Shape[0] {
		return nil, fmt.Errorf("safetensors: %s: tensor %s: rows %d to %d of shape %v: %w", v.file.path, quote(v.Name), from, to, v.Shape, ErrRange)
	}
	part := &View{Name: v.Name, DType: v.DType, file: v.file}
	part.Shape = append(part.dims[:0], v.Shape...)
	part.Shape[0] = to - from
	rows := elementCount{n: uint64(from)} // elements before the part
	upTo := elementCount{n: uint64(to)}
	for _, d := range v.Shape[1:] {
		rows.times(uint64(d))
		upTo.times(uint64(d))
	}
	begin, beginsWhole, _ := rows.bytes(v.DType)
	end, endsWhole, overflow := upTo.bytes(v.DType)
	if !beginsWhole || !endsWhole {
		return nil, &FormatError{Path: v.file.path, Tensor: v.Name, ofTensor: true, Rule: ErrPartialByte,
			Found: fmt.Sprintf("rows %d to %d of %v%v", from, to, v.DType, v.Shape)}
	}
	if overflow || end > uint64(len(v.data)) { // the caller has changed Shape
		return nil, &FormatError{Path: v.file.path, Tensor: v.Name, ofTensor: true, Rule: ErrSize,
			Found: byteCount(uint64(len(v.data))), Expected: fmt.Sprintf("the size of %v%v", v.DType, v.Shape)}
	}
	part.begin, part.data = v.begin+int64(begin), v.data[begin:end:end]
	return part, nil
}

// Entry describes the tensor for a writer, which reads it when its turn comes.
func (v *View) Entry() Entry {
	return Entry{Name: v.Name, DType: v.DType, Shape: v.Shape, Write: func(w io.Writer) error {
		_, err := v.WriteTo(w)
		return err
	}}
}
