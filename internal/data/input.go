package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
)

// sniffed is the number of bytes that are read to determine the format of a file.
const sniffed = 512

// input is an open data file, decompressed.
type input struct {
	name       string
	r          *bufio.Reader
	file       fs.File
	size       int64 // of the file
	compressed string
	read       atomic.Int64                      // bytes of the file so far
	bad        func(number int, err error) error // see refuse
	close      []func() error
}

// compression is a compression of files.
type compression struct {
	name, magic string
	endings     []string
	open        func(r io.Reader) (io.Reader, func() error, error)
}

var compressions = []compression{
	{"gzip", "\x1f\x8b", []string{".gz", ".gzip"}, func(r io.Reader) (io.Reader, func() error, error) {
		z, err := gzip.NewReader(r)
		return z, func() error { return nil }, err
	}},
	{"zstd", "\x28\xb5\x2f\xfd", []string{".zst", ".zstd"}, func(r io.Reader) (io.Reader, func() error, error) {
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, func() error { z.Close(); return nil }, nil
	}},
}

// input opens a file, and decompresses it if it begins like a compressed file.
func (o *Options) input(name string) (*input, error) {
	f, err := o.open(name)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	in := &input{name: name, file: f, close: []func() error{f.Close}}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("data: %w", err)
	case info.IsDir():
		err = at(name, 0, problem(ErrFormat, "found a folder, expected a file"))
	default:
		in.size = info.Size()
		err = in.decompress()
	}
	if err != nil {
		in.Close()
		return nil, at(name, 0, err)
	}
	return in, nil
}

// decompress sets the reader of the contents.
func (in *input) decompress() error {
	in.r = bufio.NewReaderSize(counter{in}, blockSize)
	head, err := in.r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("data: %w", err)
	}
	for _, c := range compressions {
		if !bytes.HasPrefix(head, []byte(c.magic)) {
			continue
		}
		z, done, err := c.open(in.r)
		if err != nil {
			return damaged(c.name, err)
		}
		in.compressed = c.name
		in.close = append(in.close, done)
		in.r = bufio.NewReaderSize(unpacker{z, c.name}, blockSize)
	}
	return nil
}

// Close closes the file.
func (in *input) Close() {
	for i := len(in.close) - 1; i >= 0; i-- {
		_ = in.close[i]() // the file was only read
	}
}

// refuse passes on the error of a row after which others can be read. It returns an error if reading ends.
func (in *input) refuse(number int, err error) error {
	if in.bad == nil {
		return at(in.name, number, err)
	}
	return in.bad(number, err)
}

// progress returns the number of bytes of the file that have been read.
func (in *input) progress() int64 { return min(in.read.Load(), in.size) }

// all reads the rest of the contents.
func (in *input) all() ([]byte, error) {
	raw, err := io.ReadAll(in.r)
	if err != nil {
		return nil, at(in.name, 0, err)
	}
	return raw, nil
}

// random returns the contents for access at any place: the file itself if it is not compressed.
func (in *input) random() (io.ReaderAt, int64, error) {
	if r, ok := in.file.(io.ReaderAt); ok && in.compressed == "" {
		return readerAt{r, in}, in.size, nil
	}
	raw, err := in.all()
	return bytes.NewReader(raw), int64(len(raw)), err
}

// counter counts the bytes read from a file.
type counter struct{ in *input }

func (c counter) Read(p []byte) (int, error) {
	n, err := c.in.file.Read(p)
	c.in.read.Add(int64(n))
	return n, err
}

// readerAt counts likewise, approximately: parts of a file may be read twice.
type readerAt struct {
	io.ReaderAt
	in *input
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	r.in.read.Add(int64(n))
	return n, err
}

// unpacker explains errors of compressed data.
type unpacker struct {
	io.Reader
	name string
}

func (u unpacker) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = damaged(u.name, err)
	}
	return n, err
}

// damaged returns the error for invalid compressed data.
func damaged(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return problem(ErrFormat, "the %s data ends too early: the file is truncated", name)
	}
	return problem(ErrFormat, "not valid %s data: %s", name, strings.TrimPrefix(err.Error(), name+": "))
}

// open opens a file, in Files if there are some.
func (o *Options) open(name string) (fs.File, error) {
	if o.Files != nil {
		return o.Files.Open(name)
	}
	return os.Open(name)
}
