package safetensors

import (
	"fmt"
	"io"
)

// View is one tensor of a file, or some of its rows: row-major (C order),
// little-endian, without strides, at any alignment. Bytes that a View has
// returned are valid as long as it is reachable. It is safe for concurrent use.
//
// The views of a mapped file are in place: their bytes are the mapping's. The
// views of an [io.ReaderAt] read on demand. ReadAt and WriteTo read the
// requested bytes, in pieces. WithBytes, Bytes, [As] and Hold read the whole tensor:
// WithBytes frees the memory when it returns, and Bytes and As keep it with the View.
// All of them fail with ErrFault, which also wraps the reader's own error.
type View struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar

	file   *File
	begin  int64   // offset of the data in the file, or nowhere
	data   []byte  // in the file's mapping
	source *source // set if the bytes are not in memory; data is then nil
	dims   [4]int  // storage for most shapes
}

// nowhere is the offset of bytes that are not contiguous in a file.
const nowhere = -1

// Len returns the size of the tensor in bytes.
func (v *View) Len() int {
	if v.source != nil {
		return int(v.source.length)
	}
	return len(v.data)
}

// Extent returns the file, offset and length of the tensor's bytes. The offset
// is -1 if the file does not contain them contiguously in this form: for a
// ExternalTensor with a Reader and for a Slice with gaps.
func (v *View) Extent() (path string, offset, length int64) {
	return v.file.path, v.begin, int64(v.Len())
}

// InPlace reports whether the bytes are in memory, mapped or passed to
// FromBytes. Other views read their bytes on demand.
func (v *View) InPlace() bool { return v.source == nil }

// Mapping returns the whole mapped file that contains the bytes, for users that can
// access the file's pages directly, such as a GPU that shares the host's memory. The
// memory begins at a page boundary, and the last page is zero after the end of the file.
// Mapping returns nil if the file is not mapped or is closed. Like Bytes, the memory is
// valid as long as v is reachable.
func (v *View) Mapping() []byte {
	m := v.file.mapping
	if v.source != nil || !m.pin() || !m.region.mapped {
		return nil
	}
	return m.data
}

// WithBytes calls fn with the bytes of the tensor, which are valid until fn returns,
// and returns the result of fn. While fn runs the file cannot be closed.
//
// If a page cannot be read (the file has been truncated, or the disk fails), fn
// is aborted and WithBytes fails with ErrFault. This covers fn itself and the
// functions that it calls. Goroutines started by fn crash the program, unless
// they recover and pass the panic back to fn, see Fault.
func (v *View) WithBytes(fn func(data []byte) error) (err error) {
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

// Bytes returns the bytes of the tensor in place, nil if the file is closed.
// They are valid as long as v is reachable: keep v, and call
// runtime.KeepAlive(v) after the last access if nothing else refers to it. They
// must not be written to. Accessing a page that cannot be read crashes the
// program; WithBytes returns an error instead.
//
// If v is not in place, the bytes are read once and kept. Bytes returns nil if
// that fails; Hold returns the error.
func (v *View) Bytes() []byte {
	data, _ := v.pinned()
	return data
}

// pinned implements Bytes and returns the reason for a failure.
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

// ReadAt implements io.ReaderAt; off is an offset within the tensor. It reports
// read errors as WithBytes does.
func (v *View) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("safetensors: %s: tensor %s: read at %d: %w", v.file.path, quote(v.Name), off, ErrRange)
	}
	if v.source != nil {
		return v.readSource(p, off)
	}
	err = v.WithBytes(func(data []byte) error {
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

// WriteTo implements io.WriterTo. It reports read errors as WithBytes does.
func (v *View) WriteTo(w io.Writer) (n int64, err error) {
	if v.source != nil {
		return v.writeSource(w)
	}
	if x, ok := w.(*exactWriter); ok {
		w = x.ofMapping()
	}
	err = v.WithBytes(func(data []byte) error {
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

// Rows returns the rows from from to to, exclusive, of the tensor's first dimension, in
// place. It fails with ErrRange for a scalar and for rows that do not exist, and with
// ErrPartialByte if elements smaller than a byte make a row begin within a byte.
func (v *View) Rows(from, to int) (*View, error) {
	if len(v.Shape) == 0 || from < 0 || from > to || to > v.Shape[0] {
		return nil, fmt.Errorf("safetensors: %s: tensor %s: rows %d to %d of shape %v: %w", v.file.path, quote(v.Name), from, to, v.Shape, ErrRange)
	}
	part := &View{Name: v.Name, DType: v.DType}
	part.Shape = append(part.dims[:0], v.Shape...)
	part.Shape[0] = to - from
	rows := elementCount{n: uint64(from)} // elements before the rows
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

// expect announces that the bytes in place are about to be read.
func (v *View) expect() { v.file.mapping.expect(v.begin, v.begin+int64(len(v.data))) }

// place sets the bytes of part to the bytes of v from begin to end.
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

// Entry returns an Entry of the tensor for a writer, which reads the bytes when
// it writes them.
func (v *View) Entry() Entry {
	return Entry{Name: v.Name, DType: v.DType, Shape: v.Shape, Write: func(w io.Writer) error {
		_, err := v.WriteTo(w)
		return err
	}}
}

// shapeError returns the error for a Shape that the caller has changed.
func (v *View) shapeError() error {
	return v.formatError(ErrSize, byteCount(uint64(v.Len())), fmt.Sprintf("the size of %v%v", v.DType, v.Shape))
}

func (v *View) formatError(rule error, found, expected string) error {
	return &FormatError{Path: v.file.path, Tensor: v.Name, ofTensor: true, Rule: rule, Found: found, Expected: expected}
}

// readError returns the error of a failed read; read is the number of bytes of
// the tensor read before it.
func (v *View) readError(read int64, err error) error {
	if _, ok := v.source.r.(*Slice); ok {
		return err // already names the file and tensor
	}
	place := "file"
	if v.begin == nowhere {
		place = "reader"
	}
	return fmt.Errorf("safetensors: %s: tensor %s: byte %d of the %s: %w: %w",
		v.file.path, quote(v.Name), v.source.offset+read, place, ErrFault, err)
}

// writeError returns the error of passing mapped bytes to a writer. It
// translates the system's error for memory that cannot be read to ErrFault.
func (v *View) writeError(err error) error {
	if !isFault(err) {
		return err
	}
	return fmt.Errorf("safetensors: %s: tensor %s: %w: %w", v.file.path, quote(v.Name), ErrFault, err)
}
