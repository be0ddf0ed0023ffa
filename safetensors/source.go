package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// OpenReaderAt opens a file of the given size that is read through r on demand:
// a file in an archive, on another machine, in a database. Only the header is
// read immediately, in two calls. The name is used in errors and returned by
// Path. r belongs to the caller, must stay open as long as the File is in use,
// and is called concurrently.
//
// View documents the cost of each access through r.
func OpenReaderAt(r io.ReaderAt, size int64, name string) (*File, error) {
	return openReader(r, size, name, nil)
}

// OpenFS opens a file of a file system. A file of the operating system
// (os.DirFS, os.Root) is mapped. Another file is read on demand, as by
// OpenReaderAt, if it is an io.ReaderAt, as in package embed. Otherwise, as in
// a zip archive, it is read into memory.
func OpenFS(fsys fs.FS, name string) (*File, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if err := checkReadable(name, info); err != nil {
		return nil, err // checked before opening, which may block
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	file, err := openFSFile(f, name)
	if err != nil {
		f.Close()
		return nil, err
	}
	return file, nil
}

// openFSFile opens f, which it owns unless it fails.
func openFSFile(f fs.File, name string) (*File, error) {
	info, err := f.Stat() // check the opened file
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if err := checkRegular(name, info); err != nil {
		return nil, err
	}
	var file *File
	switch f := f.(type) {
	case *os.File:
		name = f.Name()
		if file, err = load(f, info); err == nil {
			f.Close() // the mapping does not need it
		}
	case io.ReaderAt:
		return openReader(f, info.Size(), name, f.(io.Closer))
	default:
		var data []byte
		if data, err = io.ReadAll(f); err != nil {
			return nil, fmt.Errorf("safetensors: %s: %w", name, err)
		}
		if file, err = FromBytes(data); err == nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, withPath(err, name)
	}
	file.path = name
	return file, nil
}

// openReader opens a file that is read through r. Closing it closes owned, if
// not nil.
func openReader(r io.ReaderAt, size int64, name string, owned io.Closer) (*File, error) {
	if size < 0 {
		return nil, fmt.Errorf("safetensors: %s: a size of %d: %w", name, size, ErrRange)
	}
	if err := checkAddressable(name, size); err != nil {
		return nil, err
	}
	header, start, err := loadHeader(r, size)
	if format := (*FormatError)(nil); errors.As(err, &format) {
		return nil, withPath(err, name)
	} else if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", name, err)
	}
	return &File{path: name, header: header, mapping: newMapping(region{file: owned}), start: start, reader: r}, nil
}

// source reads the bytes of a view that is not in memory.
type source struct {
	r      io.ReaderAt
	offset int64 // offset in r of the first byte
	length int64
	chunk  int64 // bytes in memory at a time while they are written

	mu   sync.Mutex
	kept []byte // bytes read for View.Bytes and As
}

// readChunk is the chunk of sources that may be read in parallel.
const readChunk = 16 << 20

// part returns the source of length bytes from begin.
func (s *source) part(begin, length int64) *source {
	return &source{r: s.r, offset: s.offset + begin, length: length, chunk: s.chunk}
}

// readAt fills p with the bytes from offset off, which must exist. It returns
// the number of bytes read.
func (s *source) readAt(p []byte, off int64) (int, error) {
	n, err := s.r.ReadAt(p, s.offset+off)
	switch {
	case n == len(p):
		return n, nil // io.EOF may accompany the last bytes
	case err == nil || err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// most is the maximum amount of memory reserved before any byte is read.
const most = 1 << 30

// load returns all bytes: the kept ones, or a new copy.
func (s *source) load() (data []byte, read int64, err error) {
	s.mu.Lock()
	kept := s.kept
	s.mu.Unlock()
	if kept != nil {
		return kept, s.length, nil
	}
	// A source may promise more bytes than it has, and more than fit into
	// memory. Beyond the first bytes, the reserved memory is bounded by the
	// number of bytes read.
	for read < s.length || data == nil {
		grown := make([]byte, min(s.length, max(most, 2*read)))
		copy(grown, data)
		data = grown
		n, err := s.readAt(data[read:], read)
		read += int64(n)
		if err != nil {
			return nil, read, err
		}
	}
	return data, read, nil
}

// keep returns all bytes, like load, and keeps them for later calls.
func (s *source) keep() (data []byte, read int64, err error) {
	data, read, err = s.load()
	if err != nil {
		return nil, read, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = data
	}
	return s.kept, read, nil
}
