package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// floats is n float32 numbers 0, 1, 2, … as bytes.
func floats(n int) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i)))
	}
	return b
}

// openFloats opens a file with one tensor "x" of n rows of 2 floats.
func openFloats(t *testing.T, n int) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, WriteFile(path, []Entry{{Name: "x", DType: F32, Shape: []int{n, 2}, Data: floats(2 * n)}}, nil))
	f, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f
}

func lookup(t *testing.T, f interface{ Lookup(string) (*View, error) }, name string) *View {
	t.Helper()
	v, err := f.Lookup(name)
	require.NoError(t, err)
	return v
}

func TestLookup(t *testing.T) {
	f := mustEncode(t, []Entry{
		{Name: "model.layers.0.self_attn.q_proj.weight", DType: F16, Shape: []int{2, 3}, Data: make([]byte, 12)},
		{Name: "model.layers.0.self_attn.k_proj.weight", DType: F32, Shape: []int{1, 2, 1, 1, 1}, Data: make([]byte, 8)},
		{Name: "bias", DType: U8, Data: []byte{7}},
	}, nil)
	assert.Equal(t, []string{"model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.q_proj.weight", "bias"}, f.Names())
	assert.Equal(t, 3, f.Len())
	assert.Nil(t, f.Metadata())
	assert.True(t, f.Has("bias"))
	assert.False(t, f.Has("Bias"))

	v := lookup(t, f, "model.layers.0.self_attn.k_proj.weight")
	assert.Equal(t, []int{1, 2, 1, 1, 1}, v.Shape)
	assert.Equal(t, F32, v.DType)
	v.Shape[0] = 9
	assert.Equal(t, 1, lookup(t, f, v.Name).Shape[0], "a view has its own shape")
	assert.Equal(t, []byte{7}, lookup(t, f, "bias").Bytes())
	assert.Empty(t, lookup(t, f, "bias").Shape)

	_, err := f.Lookup("model.layers.0.self_attn.v_proj.weight")
	require.ErrorIs(t, err, ErrNotFound)
	var notFound *NotFoundError
	require.ErrorAs(t, err, &notFound)
	assert.Equal(t, []string{"model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.q_proj.weight"}, notFound.Nearest())
	assert.ErrorContains(t, err, `nearest: "model.layers.0.self_attn.k_proj.weight", "model`)
}

func TestNearest(t *testing.T) {
	names := []string{"abcd", "abxd", "abc", "zzzz", "abcde", strings.Repeat("a", 1000)}
	assert.Equal(t, []string{"abcd", "abxd", "abc"}, nearest("abcd", names, 3))
	assert.Equal(t, []string{"zzzz"}, nearest("zzz", names, 3))
	assert.Empty(t, nearest("q", names[:2], 3))
	assert.Empty(t, nearest(strings.Repeat("a", 999), names, 3))
	assert.Equal(t, []string{"b"}, nearest("a", []string{"b"}, 3), "one letter may be wrong in any name")
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"abc", "abc", 0}} {
		var rows [2][20]int
		assert.Equal(t, c.want, editDistance(c.a, c.b, 10, rows[0][:], rows[1][:]), c)
		assert.Equal(t, c.want, editDistance(c.b, c.a, 10, rows[0][:], rows[1][:]), c)
	}
}

func TestRows(t *testing.T) {
	f := openFloats(t, 5)
	v := lookup(t, f, "x")
	part, err := v.Rows(1, 3)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2}, part.Shape)
	got, err := Read[float32](part)
	require.NoError(t, err)
	assert.Equal(t, []float32{2, 3, 4, 5}, got)
	part, err = part.Rows(1, 2)
	require.NoError(t, err)
	got, err = Read[float32](part)
	require.NoError(t, err)
	assert.Equal(t, []float32{4, 5}, got)
	_, offset, length := v.Extent()
	_, partOffset, partLength := part.Extent()
	assert.Equal(t, offset+16, partOffset)
	assert.Equal(t, int64(8), partLength)
	assert.Equal(t, int64(40), length)
	assert.Equal(t, 5, v.Shape[0])

	empty, err := v.Rows(5, 5)
	require.NoError(t, err)
	assert.Zero(t, empty.Len())
	for _, r := range [][2]int{{-1, 2}, {3, 2}, {0, 6}, {6, 6}} {
		_, err := v.Rows(r[0], r[1])
		assert.ErrorIs(t, err, ErrRange, r)
	}
	v.Shape[1] = 1000
	_, err = v.Rows(1, 2)
	assert.ErrorIs(t, err, ErrSize)

	packed := mustEncode(t, []Entry{{Name: "p", DType: F4, Shape: []int{4, 3}, Data: []byte{1, 2, 3, 4, 5, 6}}, {Name: "s", DType: U8, Data: []byte{1}}}, nil)
	p := lookup(t, packed, "p")
	part, err = p.Rows(2, 4)
	require.NoError(t, err)
	assert.Equal(t, []byte{4, 5, 6}, part.Bytes())
	_, err = p.Rows(1, 2)
	assert.ErrorIs(t, err, ErrPartialByte)
	_, err = lookup(t, packed, "s").Rows(0, 0)
	assert.ErrorIs(t, err, ErrRange, "a scalar has no rows")
}

func TestAs(t *testing.T) {
	c64 := append(floats(3)[4:], floats(5)[12:]...) // 1+2i, 3+4i
	f := mustEncode(t, []Entry{
		{Name: "c64", DType: C64, Shape: []int{2}, Data: c64},
		{Name: "f32", DType: F32, Shape: []int{2}, Data: floats(2)},
		{Name: "f16", DType: F16, Shape: []int{1}, Data: []byte{1, 2}},
		{Name: "empty", DType: I64, Shape: []int{0}},
	}, nil)
	if bigEndian {
		_, err := As[complex64](lookup(t, f, "c64"))
		assert.ErrorIs(t, err, ErrByteOrder)
		t.Skip("this machine has no views in place")
	}
	z, err := As[complex64](lookup(t, f, "c64"))
	require.NoError(t, err)
	assert.Equal(t, []complex64{1 + 2i, 3 + 4i}, z)
	h, err := As[uint16](lookup(t, f, "f16"))
	require.NoError(t, err)
	assert.Equal(t, []uint16{0x0201}, h)
	e, err := As[int64](lookup(t, f, "empty"))
	require.NoError(t, err)
	assert.Empty(t, e)
	_, err = As[float64](lookup(t, f, "f32"))
	assert.ErrorIs(t, err, ErrElementType)

	// Data that starts anywhere must not be cast.
	odd, err := FromBytes(file(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}      `, 7))
	require.NoError(t, err)
	_, err = As[float32](lookup(t, odd, "b"))
	assert.ErrorIs(t, err, ErrAlignment)

	_, err = Cast[float32](make([]byte, 6))
	assert.ErrorIs(t, err, ErrSize)
	require.NoError(t, f.Close())
	_, err = As[int64](lookupAfterClose(f, "empty"))
	assert.ErrorIs(t, err, ErrClosed)
}

func lookupAfterClose(f *File, name string) *View {
	return f.view(f.header.names.find(name, f.header.records))
}

func TestElementTypes(t *testing.T) {
	can := map[string]func(DType) bool{
		"uint8": fits[uint8], "int8": fits[int8], "uint16": fits[uint16], "int16": fits[int16], "uint32": fits[uint32], "int32": fits[int32],
		"uint64": fits[uint64], "int64": fits[int64], "float32": fits[float32], "float64": fits[float64], "complex64": fits[complex64],
	}
	want := map[DType]string{
		Bool: "uint8", U8: "uint8", F8E5M2: "uint8", F8E4M3: "uint8", F8E8M0: "uint8", F8E4M3FNUZ: "uint8", F8E5M2FNUZ: "uint8", I8: "int8",
		U16: "uint16", F16: "uint16", BF16: "uint16", I16: "int16", U32: "uint32", I32: "int32", U64: "uint64", I64: "int64",
		F32: "float32", F64: "float64", C64: "complex64", F4: "", F6E2M3: "", F6E3M2: "",
	}
	require.Len(t, want, 22)
	for d, goType := range want {
		for name, fits := range can {
			assert.Equal(t, name == goType, fits(d), "%v as %s", d, name)
		}
	}
}

func TestReadAtAndWriteTo(t *testing.T) {
	v := lookup(t, openFloats(t, 5), "x")
	got, err := io.ReadAll(io.NewSectionReader(v, 4, 100))
	require.NoError(t, err)
	assert.Equal(t, floats(10)[4:], got)
	_, err = v.ReadAt(make([]byte, 1), -1)
	assert.ErrorIs(t, err, ErrRange)
	n, err := v.ReadAt(make([]byte, 1), 1000)
	assert.Zero(t, n)
	assert.Equal(t, io.EOF, err)
	var b bytes.Buffer
	written, err := v.WriteTo(&b)
	require.NoError(t, err)
	assert.Equal(t, int64(40), written)
	assert.Equal(t, floats(10), b.Bytes())
}

func TestCloseWhileInUse(t *testing.T) {
	f := openFloats(t, 5)
	v := lookup(t, f, "x")
	require.NoError(t, v.WithBytes(func(data []byte) error {
		assert.ErrorIs(t, f.Close(), ErrInUse)
		assert.Equal(t, floats(10), data, "nothing was closed")
		return v.WithBytes(func([]byte) error { return nil })
	}))
	failure := errors.New("failure")
	assert.Equal(t, failure, v.WithBytes(func([]byte) error { return failure }))
	assert.PanicsWithValue(t, "mine", func() { _ = v.WithBytes(func([]byte) error { panic("mine") }) })
	assert.Panics(t, func() {
		_ = v.WithBytes(func([]byte) error {
			var nowhere *int
			*nowhere = 1 // a fault, but not one of the mapping
			return nil
		})
	})
	require.NoError(t, f.Close(), "a panic ends the use")
	require.NoError(t, f.Close(), "twice is no error")
	assert.ErrorIs(t, v.WithBytes(func([]byte) error { return nil }), ErrClosed)
	assert.Nil(t, v.Bytes())
	_, err := f.Lookup("x")
	assert.ErrorIs(t, err, ErrClosed)
}

// mappings counts how often a file is mapped by this process.
func mappings(t *testing.T, path string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("needs /proc/self/maps")
	}
	return strings.Count(string(maps), path)
}

func TestCloseUnmapsAtOnce(t *testing.T) {
	f := openFloats(t, 5)
	require.NoError(t, lookup(t, f, "x").WithBytes(func([]byte) error { return nil }))
	assert.Equal(t, 1, mappings(t, f.Path()))
	require.NoError(t, f.Close())
	assert.Zero(t, mappings(t, f.Path()))
}

// What the garbage collector does for a file that is not closed, it does not do
// again for one that is: the address may belong to another file by then.
func TestCloseUnmapsOnce(t *testing.T) {
	f := openFloats(t, 5)
	for range 20 {
		first, err := Open(f.Path())
		require.NoError(t, err)
		require.NoError(t, first.Close())
		second, err := Open(f.Path()) // most likely where first was
		require.NoError(t, err)
		first = nil
		runtime.GC()
		runtime.GC()
		time.Sleep(time.Millisecond)
		require.Equal(t, 2, mappings(t, f.Path()))
		require.NoError(t, second.Close())
	}
}

// Bytes that were handed out survive Close, the loss of the File and garbage
// collections, as long as their View does; then the mapping goes.
func TestBytesLiveAsLongAsTheirView(t *testing.T) {
	for _, close := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		require.NoError(t, WriteFile(path, []Entry{{Name: "x", DType: F32, Shape: []int{5000, 2}, Data: floats(10000)}}, nil))
		v, data := func() (*View, []byte) {
			f, err := Open(path)
			require.NoError(t, err)
			whole := lookup(t, f, "x")
			v, err := whole.Rows(1, 5000)
			require.NoError(t, err)
			data := v.Bytes()
			if close {
				require.NoError(t, f.Close())
			}
			return v, data
		}()
		for range 3 {
			runtime.GC()
		}
		time.Sleep(10 * time.Millisecond) // cleanups run in a goroutine of their own
		assert.Equal(t, 1, mappings(t, path))
		assert.Equal(t, floats(10000)[8:], data)
		runtime.KeepAlive(v)

		v, data = nil, nil
		assert.Eventually(t, func() bool { runtime.GC(); return mappings(t, path) == 0 }, time.Minute, 5*time.Millisecond)
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	assert.ErrorIs(t, err, ErrNotRegular)
	assert.ErrorContains(t, err, "a folder")
	_, err = Open(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	if os.Symlink("nowhere", filepath.Join(dir, "link")) == nil {
		_, err = Open(filepath.Join(dir, "link"))
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
	if _, err := os.Stat("/dev/zero"); err == nil {
		_, err = Open("/dev/zero")
		assert.ErrorIs(t, err, ErrNotRegular)
	}
}

func TestOpenFollowsLinks(t *testing.T) {
	f := openFloats(t, 5)
	link := filepath.Join(t.TempDir(), "link.safetensors")
	if err := os.Symlink(f.Path(), link); err != nil {
		t.Skip(err)
	}
	g, err := Open(link)
	require.NoError(t, err)
	assert.Equal(t, f.Names(), g.Names())
	require.NoError(t, g.Close())
}
