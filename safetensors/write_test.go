package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWriteGolden(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, []Entry{
		{Name: "b", DType: F32, Shape: []int{1}, Data: []byte{1, 2, 3, 4}},
		{Name: "z", DType: U8, Data: []byte{5}},
		{Name: "a", DType: F32, Shape: []int{0, 7}},
		{Name: "<\"\\/\x00\x1f\x7f\b\f\n\r\té🙂", DType: U8, Shape: []int{2}, Write: func(w io.Writer) error {
			fmt.Fprint(w, "x")
			_, err := fmt.Fprint(w, "y")
			return err
		}},
	}, map[string]string{"z": "1", "a": "2", "m": ""}))
	header := `{"__metadata__":{"a":"2","m":"","z":"1"},` +
		`"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},` +
		`"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},` +
		`"<\"\\/\u0000\u001f` + "\x7f" + `\b\f\n\r\té🙂":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},` +
		`"z":{"dtype":"U8","shape":[],"data_offsets":[6,7]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := append(file(header, 0), "\x01\x02\x03\x04xy\x05"...)
	assert.Equal(t, string(want), b.String())
}

func TestMetadataThatIsEmptyOrAbsent(t *testing.T) {
	for want, metadata := range map[string]map[string]string{"{}      ": nil, `{"__metadata__":{}}     `: {}} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, nil, metadata))
		assert.Equal(t, want, b.String()[8:])
		f, err := FromBytes(b.Bytes())
		require.NoError(t, err)
		assert.Equal(t, metadata, f.Metadata())
	}
}

func TestWriteRefuses(t *testing.T) {
	one := func(e Entry) []Entry { return []Entry{e} }
	writes := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		entries  []Entry
		metadata map[string]string
		want     error
		written  bool // the error is found only while writing
	}{
		"no dtype":        {one(Entry{Name: "a"}), nil, ErrDType, false},
		"unknown dtype":   {one(Entry{Name: "a", DType: 99}), nil, ErrDType, false},
		"negative":        {one(Entry{Name: "a", DType: U8, Shape: []int{-1}}), nil, ErrShape, false},
		"overflow":        {one(Entry{Name: "a", DType: U8, Shape: []int{math.MaxInt, math.MaxInt, 3}}), nil, ErrOverflow, false},
		"half a byte":     {one(Entry{Name: "a", DType: F4, Shape: []int{3}, Data: []byte{1, 2}}), nil, ErrPartialByte, false},
		"too much":        {one(Entry{Name: "a", DType: U8, Data: []byte{1, 2}}), nil, ErrSize, false},
		"nothing":         {one(Entry{Name: "a", DType: U8}), nil, ErrSize, false},
		"reserved":        {one(Entry{Name: metadataKey, DType: U8, Data: []byte{1}}), nil, ErrEntry, false},
		"both":            {one(Entry{Name: "a", DType: U8, Data: []byte{1}, Write: writes("x")}), nil, ErrEntry, false},
		"name":            {one(Entry{Name: "\xff", DType: U8, Data: []byte{1}}), nil, ErrUTF8, false},
		"metadata key":    {nil, map[string]string{"\xff": ""}, ErrUTF8, false},
		"metadata value":  {nil, map[string]string{"": "\xff"}, ErrUTF8, false},
		"twice":           {[]Entry{{Name: "a", DType: U8, Data: []byte{1}}, {Name: "a", DType: I8, Data: []byte{1}}}, nil, ErrDuplicateTensor, false},
		"header too long": {nil, map[string]string{"": strings.Repeat("x", maxHeader)}, ErrHeaderTooLarge, false},
		"source short":    {one(Entry{Name: "a", DType: U8, Shape: []int{3}, Write: writes("xy")}), nil, ErrSize, true},
		"source long":     {one(Entry{Name: "a", DType: U8, Shape: []int{3}, Write: writes("xyzz")}), nil, ErrSize, true},
		"source fails":    {one(Entry{Name: "a", DType: U8, Write: func(io.Writer) error { return broken }}), nil, broken, true},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			assert.ErrorIs(t, Write(&b, c.entries, c.metadata), c.want)
			assert.Equal(t, c.written, b.Len() > 0)
			assert.NotContains(t, b.String(), "zz", "a source cannot write more than its share")

			dir := t.TempDir()
			path := filepath.Join(dir, "x.safetensors")
			require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
			err := WriteFile(path, c.entries, c.metadata)
			assert.ErrorIs(t, err, c.want)
			assertFiles(t, dir, "x.safetensors")
			old, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, "old", string(old))
		})
	}
	err := Write(io.Discard, []Entry{{Name: "a", DType: U8, Shape: []int{3}, Write: writes("xy")}}, nil)
	assert.EqualError(t, err, `safetensors: tensor "a": size of the data is not that of the shape: found 2 bytes written, expected 3 bytes`)
	err = Write(io.Discard, []Entry{{Name: "a", DType: U8, Shape: []int{3}, Write: writes("wxyz")}}, nil)
	assert.EqualError(t, err, `safetensors: write: tensor "a": 4 bytes where 3 are left: size of the data is not that of the shape`)
}

// A header may have 100,000,000 bytes, the padding included.
func TestWriteTheLongestHeader(t *testing.T) {
	l, err := newLayout(nil, map[string]string{"": ""})
	require.NoError(t, err)
	text := len(strings.TrimRight(string(l.header[lengthSize:]), " "))
	for more, want := range map[int]error{0: nil, 1: ErrHeaderTooLarge} {
		l, err = newLayout(nil, map[string]string{"": strings.Repeat("x", maxHeader-text+more)})
		require.ErrorIs(t, err, want)
		if want == nil {
			assert.Len(t, l.header, lengthSize+maxHeader)
		}
	}
}

func assertFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	assert.Equal(t, want, names)
}

func TestTensorAt(t *testing.T) {
	entries := []Entry{{Name: "a", DType: U8, Shape: []int{3}}, {Name: "b", DType: U8, Shape: []int{0}}, {Name: "c", DType: U8, Shape: []int{2}}}
	for i := range entries {
		entries[i].Write = func(io.Writer) error { return nil }
	}
	l, err := newLayout(entries, nil)
	require.NoError(t, err)
	got := ""
	for at := range l.size - int64(len(l.header)) + 1 {
		got += l.tensorAt(entries, int64(len(l.header))+at) + "."
	}
	assert.Equal(t, "a.a.a.c.c..", got)
}

// failingWriter takes n bytes.
type failingWriter struct{ n int }

var errFull = errors.New("no space left")

func (w *failingWriter) Write(p []byte) (int, error) {
	if len(p) > w.n {
		n := w.n
		w.n = 0
		return n, errFull
	}
	w.n -= len(p)
	return len(p), nil
}

func TestWriteStopsAtTheFirstError(t *testing.T) {
	f := mustEncode(t, checkpoint(3), nil)
	entries := append(checkpoint(3), Entry{Name: "streamed", DType: F32, Shape: []int{3}, Write: func(w io.Writer) error { _, err := w.Write(make([]byte, 12)); return err }})
	var whole bytes.Buffer
	require.NoError(t, Write(&whole, entries, nil))
	for n := range whole.Len() {
		require.ErrorIs(t, Write(&failingWriter{n}, entries, nil), errFull, "%d", n)
	}
	require.NoError(t, Write(&failingWriter{whole.Len()}, entries, nil))
	require.Equal(t, 3, f.Len())
}

func TestWriteFileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, nil, 0o666))
	want, err := os.Stat(plain)
	require.NoError(t, err)

	path := filepath.Join(dir, "x.safetensors")
	for _, opts := range [][]Option{nil, {Durable()}} {
		require.NoError(t, WriteFile(path, checkpoint(2), nil, opts...))
	}
	got, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, want.Mode(), got.Mode(), "as the umask has it")

	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, WriteFile(path, checkpoint(3), nil))
	got, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), got.Mode().Perm(), "as the old file has it")
	assertFiles(t, dir, "plain", "x.safetensors")
}

func TestWriteFileFollowsLinks(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"real/deep", "blobs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Skip(err)
		}
	}
	link("real/deep", "folder")
	link("../../blobs/b", "real/deep/a")            // relative to real/deep, not to root
	link(filepath.Join(root, "real/deep/a"), "abs") // a link to a link to nothing yet
	link("loop", "loop")
	for i, path := range []string{"folder/a", "abs", "real/deep/a"} {
		require.NoError(t, WriteFile(filepath.Join(root, path), checkpoint(i+1), nil))
		assertFiles(t, filepath.Join(root, "blobs"), "b")
		assertFiles(t, filepath.Join(root, "real/deep"), "a")
		f, err := Open(filepath.Join(root, "blobs/b"))
		require.NoError(t, err)
		assert.Equal(t, i+1, f.Len())
		require.NoError(t, f.Close())
		info, err := os.Lstat(filepath.Join(root, "real/deep/a"))
		require.NoError(t, err)
		assert.NotZero(t, info.Mode()&os.ModeSymlink)
	}
	assert.Error(t, WriteFile(filepath.Join(root, "loop"), nil, nil))
	blobs := filepath.Join(root, "blobs")
	err := WriteFile(blobs, nil, nil)
	assert.ErrorIs(t, err, ErrNotRegular)
	assert.EqualError(t, err, "safetensors: "+blobs+": not a regular file: found a folder")
	assert.ErrorIs(t, WriteFile(filepath.Join(root, "none", "x"), nil, nil), os.ErrNotExist)
}

// A file can be replaced by what is read from its own mapping.
func TestWriteFileOverItself(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be replaced")
	}
	f := openFloats(t, 50_000)
	v := lookup(t, f, "x")
	require.NoError(t, WriteFile(f.Path(), []Entry{v.Entry()}, map[string]string{"a": "b"}))
	assert.Equal(t, floats(100_000), v.Bytes(), "the old mapping is untouched")
	g, err := Open(f.Path())
	require.NoError(t, err)
	defer g.Close()
	assert.Equal(t, floats(100_000), lookup(t, g, "x").Bytes())
	assert.Equal(t, map[string]string{"a": "b"}, g.Metadata())

	require.NoError(t, g.Close())
	err = Write(io.Discard, []Entry{v.Entry(), {Name: "y", DType: U8, Shape: []int{1}, Write: lookupAfterClose(g, "x").Entry().Write}}, nil)
	assert.ErrorIs(t, err, ErrClosed)
}

// The number of allocations does not depend on the number of tensors.
func TestWriteDoesNotAllocatePerTensor(t *testing.T) {
	allocs := func(n int) float64 {
		entries := checkpoint(n)
		metadata := map[string]string{"format": "pt"}
		return testing.AllocsPerRun(5, func() {
			if err := Write(io.Discard, entries, metadata); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(10), allocs(2000)
	assert.LessOrEqual(t, many, 12.0)
	assert.LessOrEqual(t, many, few+2)
}

func TestParseDoesNotAllocatePerTensor(t *testing.T) {
	l, err := newLayout(checkpoint(2000), nil)
	require.NoError(t, err)
	assert.LessOrEqual(t, testing.AllocsPerRun(5, func() {
		if _, err := parseHeader(l.header[lengthSize:], 2000*64); err != nil {
			t.Fatal(err)
		}
	}), 8.0)
}

func entryGenerator() *rapid.Generator[Entry] {
	return rapid.Custom(func(t *rapid.T) Entry {
		e := Entry{
			Name:  rapid.String().Filter(func(s string) bool { return s != metadataKey }).Draw(t, "name"),
			DType: DType(rapid.IntRange(int(Bool), int(U64)).Draw(t, "dtype")),
			Shape: rapid.SliceOfN(rapid.IntRange(0, 4), 0, 6).Draw(t, "shape"),
		}
		if e.DType.Bits()%8 != 0 {
			e.Shape = append(e.Shape, 4)
		}
		size, err := e.Size()
		if err != nil {
			t.Fatal(err)
		}
		e.Data = rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
		return e
	})
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfDistinct(entryGenerator(), func(e Entry) string { return e.Name }).Draw(t, "entries")
		metadata := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		var b, shuffled bytes.Buffer
		require.NoError(t, Write(&b, entries, metadata))
		require.NoError(t, Write(&shuffled, rapid.Permutation(entries).Draw(t, "permutation"), metadata))
		require.Equal(t, b.Bytes(), shuffled.Bytes(), "the order of the entries does not matter")

		f, err := FromBytes(b.Bytes())
		require.NoError(t, err)
		require.Zero(t, f.start%8)
		require.Equal(t, metadata, f.Metadata())
		require.Equal(t, len(entries), f.Len())
		var again []Entry
		for _, e := range entries {
			v, err := f.Lookup(e.Name)
			require.NoError(t, err)
			require.Equal(t, e.DType, v.DType)
			require.Equal(t, append([]int{}, e.Shape...), append([]int{}, v.Shape...))
			require.True(t, bytes.Equal(e.Data, v.Bytes()))
			again = append(again, v.Entry())
		}
		var rewritten bytes.Buffer
		require.NoError(t, Write(&rewritten, again, f.Metadata()))
		require.Equal(t, b.Bytes(), rewritten.Bytes())
	})
}
