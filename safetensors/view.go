package safetensors

import (
	"fmt"
	"io"
)

// View is one tensor of a file, or some of its rows: row-major (C order),
// little-endian, without strides, placed anywhere in memory. As long as a View
// is reachable, bytes that it has handed out are valid. It is safe for
// concurrent use.
//
// The views of a mapped file are in place: their bytes are the file's. Those of
// a file behind an [io.ReaderAt] read when they are asked: ReadAt and WriteTo
// what they hand on, in pieces; Use the whole tensor, into memory that is free
// again when it returns; Bytes, [As] and Hold the whole tensor, which Bytes and
// As keep with the View. All of them fail with ErrFault, and with the reader's
// own error where it has one.
type View struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar

	file   *File
	begin  int64   // where in the file data begins, or nowhere
	data   []byte  // in the file's mapping
	source *source // set where the bytes are not in memory; data is then nil
	dims   [4]int  // room for most shapes
}

// nowhere is the place of bytes that do not lie in a file one after the other.
const nowhere = -1

// Len is the size of the tensor in bytes.
func (v *View) Len() int {
	if v.source != nil {
		return int(v.source.length)
	}
	return len(v.data)
}

// Extent tells where the bytes lie: in which file, from where on, how many. The
// offset is -1 for bytes that do not lie in the file one after the other, or not
// as they are: those of a Placed with a Reader, of a Slice with gaps.
func (v *View) Extent() (path string, offset, length int64) {
	return v.file.path, v.begin, int64(v.Len())
}

// InPlace reports whether the bytes are in memory, mapped or given to FromBytes.
// Those of other views are read when they are asked for.
func (v *View) InPlace() bool { return v.source == nil }

// Mapping returns the whole mapped file that the bytes lie in, for those who can use the
// pages of a file where they are, as a GPU that shares the host's memory: it begins at a
// page, and what its last page has behind it is zero. It is nil where the file is not
// mapped, or closed, and else valid as long as v is reachable, as Bytes is.
func (v *View) Mapping() []byte {
	m := v.file.mapping
	if v.source != nil || !m.pin() || !m.region.mapped {
		return nil
	}
	return m.data
}

// Use calls fn with the bytes of the tensor, which are valid until fn returns,
// and returns what fn returns. While fn runs the file cannot be closed.
//
// A page that cannot be read (the file has been cut short, the disk fails) ends
// fn, and Use fails with ErrFault. That holds for what fn does itself, calls
// included; goroutines that it starts crash the program, unless they recover and
// bring the panic back to fn, see Fault.
func (v *View) Use(fn func(data []byte) error) (err error) {
	m := v.file.mapping
	if !m.acquire() {
		return v.file.errClosed()
	}
	defer m.release()
	if v.source != nil {
		data, read, err := v.source.load()
		if err != nil {
			return v.readError(read, err)
		}
		return fn(data)
	}
	v.expect()
	at, ok := m.guarded(func() { err = fn(v.data) })
	if !ok {
		return fmt.Errorf("safetensors: %s: tensor %s: byte %d of the file: %w", v.file.path, quote(v.Name), at, ErrFault)
	}
	return err
}

// Bytes returns the bytes of the tensor in place, nil where the file has been
// closed. They are valid as long as v is reachable: keep v, and end the last
// access with runtime.KeepAlive(v) where nothing else refers to it. They must
// not be written to. Reading a page that cannot be read crashes the program;
// Use turns that into an error.
//
// Where v is not in place, the bytes are read once and kept, nil where that
// fails; Hold says why.
func (v *View) Bytes() []byte {
	data, _ := v.pinned()
	return data
}

// pinned is Bytes with the reason for a failure.
func (v *View) pinned() ([]byte, error) {
	m := v.file.mapping
	if v.source == nil {
		if !m.pin() {
			return nil, v.file.errClosed()
		}
		v.expect()
		return v.data, nil
	}
	if !m.acquire() {
		return nil, v.file.errClosed()
	}
	defer m.release()
	data, read, err := v.source.keep()
	if err != nil {
		return nil, v.readError(read, err)
	}
	return data, nil
}

// ReadAt copies bytes of the tensor, from the offset within the tensor on, as
// io.ReaderAt. It is checked like Use.
func (v *View) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("safetensors: %s: tensor %s: read at %d: %w", v.file.path, quote(v.Name), off, ErrRange)
	}
	if v.source != nil {
		return v.readSource(p, off)
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

func (v *View) readSource(p []byte, off int64) (n int, err error) {
	m := v.file.mapping
	if !m.acquire() {
		return 0, v.file.errClosed()
	}
	defer m.release()
	part := p[:min(int64(len(p)), max(0, v.source.length-off))]
	if len(part) > 0 {
		if n, err = v.source.readAt(part, off); err != nil {
			return n, v.readError(off+int64(n), err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteTo writes the bytes of the tensor to w, as io.WriterTo. It is checked
// like Use.
func (v *View) WriteTo(w io.Writer) (n int64, err error) {
	if v.source != nil {
		return v.writeSource(w)
	}
	if x, ok := w.(*exactWriter); ok {
		w = x.ofMapping()
	}
	err = v.Use(func(data []byte) error {
		written, err := w.Write(data)
		n = int64(written)
		return v.writeError(err)
	})
	return n, err
}

func (v *View) writeSource(w io.Writer) (n int64, err error) {
	var buffer []byte
	for n < v.source.length {
		if buffer == nil {
			buffer = make([]byte, min(v.source.length, v.source.chunk))
		}
		piece := buffer[:min(int64(len(buffer)), v.source.length-n)]
		if _, err := v.readSource(piece, n); err != nil {
			return n, err
		}
		written, err := w.Write(piece)
		n += int64(written)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Rows returns the part of the tensor from row from up to but not including row
// to of its first dimension, in place. It fails with ErrRange for a scalar and
// for rows that do not exist, and with ErrPartialByte where elements of less than a byte
// make a row begin within a byte.
func (v *View) Rows(from, to int) (*View, error) {
	if len(v.Shape) == 0 || from < 0 || from > to || to > v.Shape[0] {
		return nil, fmt.Errorf("safetensors: %s: tensor %s: rows %d to %d of shape %v: %w", v.file.path, quote(v.Name), from, to, v.Shape, ErrRange)
	}
	part := &View{Name: v.Name, DType: v.DType}
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
		return nil, v.formatError(ErrPartialByte, fmt.Sprintf("rows %d to %d of %v%v", from, to, v.DType, v.Shape), "")
	}
	if overflow || end > uint64(v.Len()) {
		return nil, v.shapeError()
	}
	v.place(part, int64(begin), int64(end))
	return part, nil
}

// expect says that the bytes in place are about to be read.
func (v *View) expect() { v.file.mapping.expect(v.begin, v.begin+int64(len(v.data))) }

// place makes the bytes of v from begin to end those of part.
func (v *View) place(part *View, begin, end int64) {
	part.file, part.begin = v.file, v.begin
	if v.begin != nowhere {
		part.begin += begin
	}
	if v.source != nil {
		part.source = v.source.part(begin, end-begin)
	} else {
		part.data = v.data[begin:end:end]
	}
}

// Entry describes the tensor for a writer, which reads it when its turn comes.
func (v *View) Entry() Entry {
	return Entry{Name: v.Name, DType: v.DType, Shape: v.Shape, Write: func(w io.Writer) error {
		_, err := v.WriteTo(w)
		return err
	}}
}

// shapeError is what is wrong where the caller has changed Shape.
func (v *View) shapeError() error {
	return v.formatError(ErrSize, byteCount(uint64(v.Len())), fmt.Sprintf("the size of %v%v", v.DType, v.Shape))
}

func (v *View) formatError(rule error, found, expected string) error {
	return &FormatError{Path: v.file.path, Tensor: v.Name, ofTensor: true, Rule: rule, Found: found, Expected: expected}
}

// readError says where reading has failed, given how many bytes of the tensor
// could be read.
func (v *View) readError(read int64, err error) error {
	if _, ok := v.source.r.(*Slice); ok {
		return err // of this file and tensor
	}
	place := "file"
	if v.begin == nowhere {
		place = "reader"
	}
	return fmt.Errorf("safetensors: %s: tensor %s: byte %d of the %s: %w: %w",
		v.file.path, quote(v.Name), v.source.offset+read, place, ErrFault, err)
}

// writeError is the error of handing mapped bytes to a writer. The system says
// in its own way that it could not read them.
func (v *View) writeError(err error) error {
	if !isFault(err) {
		return err
	}
	return fmt.Errorf("safetensors: %s: tensor %s: %w: %w", v.file.path, quote(v.Name), ErrFault, err)
}
