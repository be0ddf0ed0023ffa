package safetensors

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"unicode/utf8"
)

// ExternalTensor is a tensor that is stored in a file of another format, or is
// computed.
type ExternalTensor struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar
	// Offset is the offset in the file of the tensor's bytes: row-major,
	// little-endian, as long as dtype and shape imply.
	Offset int64
	// Reader reads exactly the bytes of a tensor that the file does not contain in
	// this form: a transposed view, a compressed record. Offset is then ignored.
	// Reader is called concurrently. If it is an io.Closer, it is closed when the
	// File is closed or becomes unreachable. Several tensors may share a Reader.
	Reader io.ReaderAt
}

// OpenExternal maps the file at path, whatever its format, and returns the given
// tensors as a File, in the order given. They may overlap, since other formats
// let tensors share memory. Views of tensors without a Reader are in place; the
// others are read on demand, see View.
//
// It fails with ErrDType, ErrShape, ErrOverflow and ErrPartialByte, with
// ErrTruncated if a tensor extends past the end of the file, with ErrRange for a
// negative offset, with ErrDuplicateTensor and ErrUTF8 for names, and as Open
// does.
func OpenExternal(path string, tensors []ExternalTensor, metadata map[string]string) (*File, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping does not need it
	header, err := placedHeader(tensors, info.Size())
	if err != nil {
		return nil, withPath(err, path)
	}
	header.metadata = maps.Clone(metadata)
	file := &File{path: path, header: header, info: info}
	var owned closers
	for i := range tensors {
		if tensors[i].Reader != nil {
			if file.readers == nil {
				file.readers = make([]io.ReaderAt, len(tensors))
			}
			file.readers[i] = tensors[i].Reader
			if c, ok := tensors[i].Reader.(io.Closer); ok {
				owned = append(owned, c)
			}
		}
	}
	var r region
	if info.Size() > 0 { // an empty file cannot be mapped
		if r, err = mapRegion(f, info.Size()); err != nil {
			return nil, err
		}
	}
	if len(owned) > 0 {
		r.file = owned
	}
	file.mapping = newMapping(r)
	return file, nil
}

// closers is a list of closers that implements io.Closer.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// placedHeader returns the header of a file of the given size that contains
// these tensors. Its text contains only their shapes.
func placedHeader(tensors []ExternalTensor, fileSize int64) (*header, error) {
	h := &header{records: make([]record, len(tensors))}
	for i := range tensors {
		p := &tensors[i]
		e := Entry{Name: p.Name, DType: p.DType, Shape: p.Shape}
		size, err := e.Size()
		if err != nil {
			return nil, err
		}
		r := record{name: p.Name, dtype: p.DType, shapeAt: uint32(len(h.text)), rank: uint32(len(p.Shape)), end: uint64(size)}
		if p.Reader == nil {
			r.begin, r.end = uint64(p.Offset), uint64(p.Offset)+uint64(size)
		}
		switch {
		case !utf8.ValidString(p.Name):
			return nil, tensorError(p.Name, ErrUTF8, "", "")
		case p.Reader == nil && p.Offset < 0:
			return nil, tensorError(p.Name, ErrRange, "an offset of "+strconv.FormatInt(p.Offset, 10), "")
		case p.Reader == nil && r.end > uint64(fileSize):
			return nil, tensorError(p.Name, ErrTruncated, byteCount(uint64(fileSize)), strconv.FormatUint(r.end, 10))
		}
		h.records[i] = r
		h.text = appendShapeText(h.text, p.Shape)
		if len(h.text) > maxHeader { // the limit of a file, and far below the maximum of shapeAt
			return nil, tensorError(p.Name, ErrHeaderTooLarge, fmt.Sprintf("shapes of more than %d bytes", maxHeader), "")
		}
	}
	if i := h.names.build(h.records); i >= 0 {
		return nil, tensorError(tensors[i].Name, ErrDuplicateTensor, "", "")
	}
	return h, nil
}

// appendShapeText appends a shape in the form used in a header.
func appendShapeText(b []byte, shape []int) []byte {
	b = append(b, '[')
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(d), 10)
	}
	return append(b, ']')
}
