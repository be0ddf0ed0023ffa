//go:build unix

package safetensors

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// skipEmulated skips what user-mode emulators do not do as a system does it:
// take advice, and say where a fault was.
func skipEmulated(t testing.TB) {
	t.Helper()
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(page)) }()
	if unix.Madvise(page, 12345) == nil {
		t.Skip("an emulator that nods at any advice")
	}
}

// A file that is cut short while it is mapped is an error of whoever reads
// what is gone, whichever way; the rest can be read.
func TestCutShortWhileMapped(t *testing.T) {
	skipEmulated(t)
	f := openFloats(t, 100_000)
	v := lookup(t, f, "x")
	require.NoError(t, os.Truncate(f.Path(), 4096))
	columns, err := v.Slice(Span{0, 100_000}, Span{1, 2})
	require.NoError(t, err)
	rows, err := v.Slice(Span{50_000, 50_010})
	require.NoError(t, err)
	sink, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	require.NoError(t, err)
	defer sink.Close()
	pipe, drain, err := os.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	defer drain.Close()
	var sum int
	for name, read := range map[string]func() error{
		"use": func() error {
			return v.WithBytes(func(data []byte) error {
				for _, b := range data {
					sum += int(b)
				}
				return nil
			})
		},
		"read at":            func() error { _, err := v.ReadAt(make([]byte, 1000), 500_000); return err },
		"write to a buffer":  func() error { _, err := v.WriteTo(struct{ io.Writer }{new(countingWriter)}); return err },
		"write to a file":    func() error { _, err := v.WriteTo(sink); return err },
		"write to a pipe":    func() error { w := rows.View(); _, err := w.WriteTo(drain); return err },
		"write a file":       func() error { return WriteFile(filepath.Join(t.TempDir(), "x"), []Entry{v.Entry()}, nil) },
		"read elements":      func() error { _, err := Read[float32](v); return err },
		"read into":          func() error { return ReadInto(v, make([]float32, 200_000)) },
		"columns":            func() error { return columns.ReadInto(make([]byte, columns.Len())) },
		"columns, as a view": func() error { return columns.View().WithBytes(func([]byte) error { return nil }) },
		"columns, held":      func() error { _, err := columns.View().Hold(); return err },
		"columns, written":   func() error { _, err := columns.WriteTo(io.Discard); return err },
		"rows":               func() error { return rows.ReadInto(make([]byte, rows.Len())) },
	} {
		t.Run(name, func(t *testing.T) {
			err := read()
			require.ErrorIs(t, err, ErrFault, sum)
			assert.ErrorContains(t, err, f.Path())
			assert.ErrorContains(t, err, `tensor "x"`)
		})
	}
	err = v.WithBytes(func(data []byte) error { _, err := new(countingWriter).Write(data); return err })
	assert.ErrorContains(t, err, "byte 4096 of the file")
	_, err = v.WriteTo(io.Discard)
	assert.NoError(t, err, "nobody has looked")
	first, err := v.Rows(0, 10)
	require.NoError(t, err)
	assert.NoError(t, first.WithBytes(func(data []byte) error { assert.Equal(t, floats(20), data); return nil }), "what is still there can be read")
	assert.NoError(t, f.Close(), "a fault ends the use")
}

// countingWriter looks at what it is given, as a buffer does.
type countingWriter struct{ sum int }

func (w *countingWriter) Write(p []byte) (int, error) {
	for _, b := range p {
		w.sum += int(b)
	}
	return len(p), nil
}

// A file that is overwritten in place shows its new bytes: nothing protects
// against that, and nothing pretends to.
func TestOverwrittenWhileMapped(t *testing.T) {
	f := openFloats(t, 5)
	v := lookup(t, f, "x")
	w, err := os.OpenFile(f.Path(), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer w.Close()
	_, offset, _ := v.Extent()
	_, err = w.WriteAt([]byte{1, 2, 3, 4}, offset)
	require.NoError(t, err)
	require.NoError(t, v.WithBytes(func(data []byte) error { assert.Equal(t, []byte{1, 2, 3, 4}, data[:4]); return nil }))
}

// Close really takes the pages away: a slice that was carried out of WithBytes faults.
// Nothing of the API leads there.
func TestNothingLeadsToUnmappedPages(t *testing.T) {
	skipEmulated(t)
	f := openFloats(t, 1<<19) // large, so that nothing else is mapped there soon
	v := lookup(t, f, "x")
	rows, err := v.Rows(1, 2)
	require.NoError(t, err)
	columns, err := v.Slice(Span{0, 1 << 19}, Span{0, 1})
	require.NoError(t, err)
	hold, err := v.Hold()
	require.NoError(t, err)
	var carried []byte
	require.NoError(t, v.WithBytes(func(data []byte) error { carried = data; return nil }))
	hold.Release()
	runtime.GC()
	assert.Equal(t, byte(0x49), carried[len(carried)-1], "still mapped")
	require.NoError(t, f.Close())
	runtime.GC()

	fault := func() (r any) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { r = recover() }()
		return carried[1<<20]
	}()
	assert.Implements(t, (*runtime.Error)(nil), fault)

	assert.Nil(t, hold.Bytes())
	assert.Nil(t, v.Bytes())
	for name, read := range map[string]func() error{
		"lookup":       func() error { _, err := f.Lookup("x"); return err },
		"use":          func() error { return v.WithBytes(func([]byte) error { return nil }) },
		"rows":         func() error { return rows.WithBytes(func([]byte) error { return nil }) },
		"later rows":   func() error { r, err := v.Rows(2, 3); require.NoError(t, err); _, err = As[float32](r); return err },
		"hold":         func() error { _, err := v.Hold(); return err },
		"read":         func() error { _, err := v.ReadAt(make([]byte, 1), 0); return err },
		"write":        func() error { _, err := v.WriteTo(io.Discard); return err },
		"entry":        func() error { return v.Entry().Write(io.Discard) },
		"elements":     func() error { _, err := Read[float32](v); return err },
		"columns":      func() error { return columns.ReadInto(make([]byte, columns.Len())) },
		"column view":  func() error { return columns.View().WithBytes(func([]byte) error { return nil }) },
		"column read":  func() error { _, err := columns.ReadAt(make([]byte, 1), 0); return err },
		"column write": func() error { _, err := columns.WriteTo(io.Discard); return err },
	} {
		assert.ErrorIs(t, read(), ErrClosed, name)
	}
}
