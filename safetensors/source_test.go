package safetensors

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fiveRows is a file with the tensor "x" of openFloats, and an empty one.
func fiveRows(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, []Entry{
		{Name: "x", DType: F32, Shape: []int{5, 2}, Data: floats(10)},
		{Name: "empty", DType: U8, Shape: []int{0, 3}},
	}, map[string]string{"format": "pt"}))
	return b.Bytes()
}

// counted counts the reads of a file.
type counted struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	n, err := c.ReaderAt.ReadAt(p, off)
	c.bytes += n
	return n, err
}

func TestOpenReaderAt(t *testing.T) {
	data := fiveRows(t)
	r := &counted{ReaderAt: bytes.NewReader(data)}
	f, err := OpenReaderAt(r, int64(len(data)), "far away")
	require.NoError(t, err)
	assert.Equal(t, 2, r.reads, "the header's length, the header")
	assert.Equal(t, len(data)-40, r.bytes)
	assert.Equal(t, "far away", f.Path())
	assert.Equal(t, map[string]string{"format": "pt"}, f.Metadata())

	v := lookup(t, f, "x")
	assert.Equal(t, 2, r.reads, "a lookup reads nothing")
	assert.False(t, v.InPlace())
	assert.Equal(t, 40, v.Len())
	path, offset, length := v.Extent()
	assert.Equal(t, "far away", path)
	assert.Equal(t, int64(len(data)-40), offset)
	assert.Equal(t, int64(40), length)

	rows, err := v.Rows(1, 3)
	require.NoError(t, err)
	require.NoError(t, rows.WithBytes(func(data []byte) error { assert.Equal(t, floats(6)[8:], data); return nil }))
	assert.Equal(t, len(data)-40+16, r.bytes, "only the rows are read")
	_, rowsOffset, _ := rows.Extent()
	assert.Equal(t, offset+8, rowsOffset)

	got, err := io.ReadAll(io.NewSectionReader(v, 4, 100))
	require.NoError(t, err)
	assert.Equal(t, floats(10)[4:], got)
	var b bytes.Buffer
	n, err := v.WriteTo(&b)
	require.NoError(t, err)
	assert.Equal(t, int64(40), n)
	assert.Equal(t, floats(10), b.Bytes())

	r.reads = 0
	assert.Equal(t, floats(10), v.Bytes())
	kept := v.Bytes()
	if !bigEndian {
		numbers, err := As[float32](v)
		require.NoError(t, err)
		assert.Equal(t, float32(9), numbers[9])
	}
	assert.Equal(t, 1, r.reads, "the bytes are kept")
	assert.Empty(t, lookup(t, f, "empty").Bytes())

	require.NoError(t, f.Close())
	assert.Nil(t, v.Bytes())
	assert.ErrorIs(t, v.WithBytes(func([]byte) error { return nil }), ErrClosed)
	_, err = v.ReadAt(nil, 0)
	assert.ErrorIs(t, err, ErrClosed)
	assert.Equal(t, floats(10), kept, "a copy outlives the file")
}

func TestOpenReaderAtRefuses(t *testing.T) {
	data := fiveRows(t)
	for n := range len(data) {
		_, err := OpenReaderAt(bytes.NewReader(data[:n]), int64(n), "short")
		var format *FormatError
		require.ErrorAs(t, err, &format)
		require.Equal(t, "short", format.Path)
		if n < len(data)-40 {
			_, err = OpenReaderAt(bytes.NewReader(data[:n]), int64(len(data)), "shorter than promised")
			require.ErrorAs(t, err, &format)
		}
	}
	_, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)+1), "long")
	assert.ErrorIs(t, err, ErrTrailing)
	_, err = OpenReaderAt(bytes.NewReader(data), -1, "negative")
	assert.ErrorIs(t, err, ErrRange)
}

// A source that cannot be read is an error that says what has failed.
func TestReadErrors(t *testing.T) {
	data := fiveRows(t)
	size := int64(len(data))
	cut := bytes.NewReader(data[:size-20])
	f, err := OpenReaderAt(cut, size, "cut")
	require.NoError(t, err)
	v := lookup(t, f, "x")
	for name, read := range map[string]func() error{
		"use":   func() error { return v.WithBytes(func([]byte) error { t.Error("called"); return nil }) },
		"hold":  func() error { _, err := v.Hold(); return err },
		"read":  func() error { _, err := v.ReadAt(make([]byte, 40), 0); return err },
		"write": func() error { _, err := v.WriteTo(io.Discard); return err },
		"as":    func() error { _, err := As[float32](v); return err },
	} {
		err := read()
		assert.ErrorIs(t, err, ErrFault, name)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		assert.EqualError(t, err, fmt.Sprintf(`safetensors: cut: tensor "x": byte %d of the file: file could not be read: unexpected EOF`, size-20), name)
	}
	assert.Nil(t, v.Bytes())
	first, err := v.Rows(0, 2)
	require.NoError(t, err)
	assert.Equal(t, floats(4), first.Bytes(), "what is there can be read")
	require.NoError(t, f.Close(), "no failure keeps the file open")
}

func TestOpenFS(t *testing.T) {
	data := fiveRows(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.safetensors"), data, 0o600))
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	w, err := z.Create("m.safetensors")
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	unzipped, err := zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		fsys    fs.FS
		inPlace bool
	}{"folder": {os.DirFS(dir), true}, "memory": {fstest.MapFS{"m.safetensors": {Data: data}}, false}, "zip": {unzipped, true}} {
		t.Run(name, func(t *testing.T) {
			f, err := OpenFS(c.fsys, "m.safetensors")
			require.NoError(t, err)
			v := lookup(t, f, "x")
			assert.Equal(t, c.inPlace, v.InPlace())
			assert.NoError(t, v.WithBytes(func(data []byte) error { assert.Equal(t, floats(10), data); return nil }))
			assert.NoError(t, f.Close())
			_, err = OpenFS(c.fsys, "none")
			assert.ErrorIs(t, err, fs.ErrNotExist)
			_, err = OpenFS(c.fsys, ".")
			assert.ErrorIs(t, err, ErrNotRegular)
		})
	}
	assert.Zero(t, mappings(t, dir))
}

// odd is a file system whose only file is odd.
type odd struct {
	fs.File
	opened error
}

func (o odd) Stat(string) (fs.FileInfo, error) {
	return fs.Stat(fstest.MapFS{"m": {Data: []byte("x")}}, "m")
}
func (o odd) Open(string) (fs.File, error) { return o.File, o.opened }

type oddFile struct {
	data   io.Reader
	stat   func() (fs.FileInfo, error)
	closed *atomic.Int32
	err    error
}

func (o oddFile) Stat() (fs.FileInfo, error) { return o.stat() }
func (o oddFile) Read(p []byte) (int, error) { return o.data.Read(p) }
func (o oddFile) Close() error               { o.closed.Add(1); return o.err }

type oddReaderAt struct {
	oddFile
	io.ReaderAt
}

func TestOpenFSOfOddFiles(t *testing.T) {
	data := fiveRows(t)
	info := func(name string) func() (fs.FileInfo, error) {
		return func() (fs.FileInfo, error) {
			return fs.Stat(fstest.MapFS{"m": {Data: data}, "dir/x": {Data: nil}}, name)
		}
	}
	broken := errors.New("broken")
	var closed atomic.Int32
	for name, c := range map[string]struct {
		fsys fs.FS
		want error
	}{
		"does not open":     {odd{opened: broken}, broken},
		"stat fails":        {odd{File: oddFile{stat: func() (fs.FileInfo, error) { return nil, broken }, closed: &closed}}, broken},
		"turns to a folder": {odd{File: oddFile{stat: info("dir"), closed: &closed}}, ErrNotRegular},
		"cannot be read":    {odd{File: oddFile{stat: info("m"), closed: &closed, data: iotest.ErrReader(broken)}}, broken},
		"is cut short":      {odd{File: oddFile{stat: info("m"), closed: &closed, data: bytes.NewReader(data[:50])}}, ErrHeaderPastEnd},
		"is none":           {odd{File: oddReaderAt{oddFile{stat: info("m"), closed: &closed}, bytes.NewReader(data[:50])}}, ErrHeaderPastEnd},
	} {
		closed.Store(0)
		_, err := OpenFS(c.fsys, "m")
		assert.ErrorIs(t, err, c.want, name)
		if name != "does not open" {
			assert.EqualValues(t, 1, closed.Load(), name)
		}
	}
	f, err := OpenFS(odd{File: oddReaderAt{oddFile{stat: info("m"), closed: &closed, err: broken}, bytes.NewReader(data)}}, "m")
	require.NoError(t, err)
	closed.Store(0)
	require.NoError(t, lookup(t, f, "x").WithBytes(func(data []byte) error { assert.Equal(t, floats(10), data); return nil }))
	assert.ErrorIs(t, f.Close(), broken)
	assert.NoError(t, f.Close())
	assert.EqualValues(t, 1, closed.Load())

	// One that nobody closes is closed when nobody can read it any more.
	func() {
		f, err := OpenFS(odd{File: oddReaderAt{oddFile{stat: info("m"), closed: &closed}, bytes.NewReader(data)}}, "m")
		require.NoError(t, err)
		assert.NotNil(t, lookup(t, f, "x").Bytes())
	}()
	assert.Eventually(t, func() bool { runtime.GC(); return closed.Load() == 2 }, time.Minute, 5*time.Millisecond)
}
