package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
)

// File is an open file: its checked header and its bytes, which are mapped or
// read on demand. It is safe for concurrent use.
type File struct {
	path    string
	header  *header
	mapping *mapping
	start   int64       // offset of the data
	info    fs.FileInfo // of the mapped file, nil if not mapped

	reader  io.ReaderAt   // of the file, nil if it is in memory
	readers []io.ReaderAt // of single tensors by number, nil for tensors in memory
}

// Open maps the file at path, following symbolic links, and checks its header
// against every rule of the format; it reads no tensor data. It fails with a
// *FormatError for a file that breaks a rule, an *fs.PathError for a file that
// cannot be opened, and ErrNotRegular for anything but a regular file.
//
// A file that is not closed is unmapped after it and its views have become
// unreachable.
func Open(path string) (*File, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping does not need it
	file, err := load(f, info)
	if err != nil {
		return nil, withPath(err, path)
	}
	file.path = path
	return file, nil
}

func load(f *os.File, info fs.FileInfo) (*File, error) {
	size := info.Size()
	exactly(f, true) // otherwise the kernel reads far beyond the header
	header, start, err := loadHeader(f, size)
	exactly(f, false)
	if format := (*FormatError)(nil); errors.As(err, &format) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	region, err := mapRegion(f, size)
	if err != nil {
		return nil, err
	}
	return &File{header: header, mapping: newMapping(region), start: start, info: info}, nil
}

func mapRegion(f *os.File, size int64) (region, error) {
	if err := checkAddressable(f.Name(), size); err != nil {
		return region{}, err
	}
	r, err := mapFile(f, int(size))
	if err != nil {
		return region{}, fmt.Errorf("safetensors: %w", err)
	}
	return r, nil
}

// checkAddressable rejects a size too large for the machine's int.
func checkAddressable(name string, size int64) error {
	if size <= math.MaxInt {
		return nil
	}
	return fmt.Errorf("safetensors: %s: %d bytes are too many for this machine: %w", name, size, errors.ErrUnsupported)
}

// loadHeader reads and checks the header and returns the offset of the data.
func loadHeader(r io.ReaderAt, size int64) (*header, int64, error) {
	text, err := readHeader(r, size)
	if err != nil {
		return nil, 0, recognized(err, r, size)
	}
	start := lengthSize + int64(len(text))
	h, err := parseHeader(text, uint64(size-start))
	if err != nil {
		return nil, 0, recognized(err, r, size)
	}
	return h, start, nil
}

// readHeader reads the JSON with read(2), not through the mapping, in which a
// file that is truncated concurrently would cause a fault.
func readHeader(f io.ReaderAt, size int64) ([]byte, error) {
	var first [lengthSize]byte
	if n, err := f.ReadAt(first[:min(size, lengthSize)], 0); err != nil && err != io.EOF {
		return nil, err
	} else if n < lengthSize {
		size = int64(n)
	}
	n, err := headerLength(first[:], size)
	if err != nil {
		return nil, err
	}
	text := make([]byte, n)
	if got, err := f.ReadAt(text, lengthSize); got < len(text) {
		if err == io.EOF {
			return nil, &FormatError{Rule: ErrHeaderPastEnd, Found: byteCount(uint64(n)), Expected: fmt.Sprintf("at most the %d that follow", got)}
		}
		return nil, err
	}
	return text, nil
}

// FromBytes opens a file that is already in memory. The bytes must not change
// while the File or one of its views is in use.
func FromBytes(data []byte) (*File, error) {
	header, start, err := headerOf(data)
	if err != nil {
		return nil, recognized(err, bytes.NewReader(data), int64(len(data)))
	}
	return &File{header: header, mapping: newMapping(region{data: data}), start: start}, nil
}

// headerOf parses the header of a file in memory, like loadHeader.
func headerOf(data []byte) (*header, int64, error) {
	n, err := headerLength(data, int64(len(data)))
	if err != nil {
		return nil, 0, err
	}
	start := lengthSize + n
	// Names are strings that point into the text, so the text must not be
	// memory that the caller may change later.
	text := append([]byte(nil), data[lengthSize:start]...)
	h, err := parseHeader(text, uint64(int64(len(data))-start))
	return h, start, err
}

// Path returns the path that the file was opened with, empty for FromBytes.
func (f *File) Path() string { return f.path }

// Len returns the number of tensors.
func (f *File) Len() int { return len(f.header.records) }

// Names returns the names of the tensors in the order of their data. Tensors
// without bytes at the same offset are in the order of the header.
func (f *File) Names() []string {
	names := make([]string, len(f.header.records))
	for i := range names {
		names[i] = f.header.records[i].name
	}
	return names
}

// Metadata returns a copy of the file's metadata, nil if it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.header.metadata) }

// Has reports whether the file holds a tensor with the given name.
func (f *File) Has(name string) bool {
	i := f.header.names.find(name, f.header.records)
	return i >= 0
}

// Lookup returns the tensor with the given name, without reading it. It fails
// with ErrClosed, or with a *NotFoundError, which wraps ErrNotFound and lists
// the nearest names.
func (f *File) Lookup(name string) (*View, error) {
	if f.mapping.isClosed() {
		return nil, f.errClosed()
	}
	i := f.header.names.find(name, f.header.records)
	if i < 0 {
		return nil, &NotFoundError{Path: f.path, Name: name, names: f.Names}
	}
	return f.view(i), nil
}

func (f *File) view(i int) *View {
	r := &f.header.records[i]
	begin, end := f.start+int64(r.begin), f.start+int64(r.end)
	v := &View{Name: r.name, DType: r.dtype, file: f, begin: begin}
	switch {
	case f.readers != nil && f.readers[i] != nil:
		v.begin = nowhere
		v.source = &source{r: f.readers[i], length: end - begin, chunk: readChunk}
	case f.reader != nil:
		v.source = &source{r: f.reader, offset: begin, length: end - begin, chunk: readChunk}
	default:
		v.data = f.mapping.data[begin:end:end]
	}
	v.Shape = f.header.appendShape(v.dims[:0], r)
	return v
}

// Close closes the file; its views then fail with ErrClosed. While a View.WithBytes
// is running or a Hold is not released, Close fails with ErrInUse, reports the
// number of users, and closes nothing. The file is unmapped at once, unless
// View.Bytes or As has returned bytes: they stay valid as long as their views
// are reachable. Closing twice is no error.
func (f *File) Close() error { return closeAll([]*File{f}) }

// closeAll closes all of the files or none.
func closeAll(files []*File) error {
	open := make([]*File, 0, len(files))
	for _, f := range files {
		first, users := f.mapping.retire()
		if users > 0 {
			for _, f := range open {
				f.mapping.reopen()
			}
			return fmt.Errorf("safetensors: close %s: %w: %d uses or holds have not ended", f.path, ErrInUse, users)
		}
		if first {
			open = append(open, f)
		}
	}
	var errs []error
	for _, f := range open {
		if err := f.mapping.free(); err != nil {
			errs = append(errs, fmt.Errorf("safetensors: close %s: %w", f.path, err))
		}
	}
	return errors.Join(errs...)
}

func (f *File) errClosed() error { return fmt.Errorf("safetensors: %s: %w", f.path, ErrClosed) }

// openRegular opens a regular file for reading. It rejects folders, FIFOs and
// devices before opening them, because opening may block or have side effects.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	if err := checkReadable(path, info); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, openFlags, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	info, err = f.Stat() // check again, on the opened file
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// checkReadable calls checkRegular, but for a folder it returns an error that
// names the function that opens one.
func checkReadable(path string, info fs.FileInfo) error {
	if info.IsDir() {
		return &FormatError{Path: path, Rule: ErrNotRegular, Foreign: Folder}
	}
	return checkRegular(path, info)
}

func checkRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &FormatError{Path: path, Rule: ErrNotRegular, Found: kindOf(info.Mode())}
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return m.String()
}
