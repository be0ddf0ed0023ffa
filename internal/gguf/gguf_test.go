package gguf_test

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/gguf"
)

const blocks = "testdata/blocks.gguf"

func open(t *testing.T, path string) *gguf.File {
	f, err := gguf.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f
}

func floats(t *testing.T, f *gguf.File, name string) []float32 {
	x, err := f.Tensor(name)
	require.NoError(t, err)
	values := make([]float32, x.Elements())
	require.NoError(t, f.Float32s(values, x, 0))
	return values
}

// Metadata of all types, as llama.cpp's package writes them.
func TestMetadata(t *testing.T) {
	f := open(t, blocks)
	for key, want := range map[string]any{
		"kind.u8": uint8(200), "kind.i8": int8(-3), "kind.u16": uint16(60000), "kind.i16": int16(-7), "kind.u32": uint32(4000000000),
		"kind.i32": int32(-9), "kind.u64": uint64(1 << 60), "kind.i64": int64(-1 << 60), "kind.f32": float32(0.25), "kind.f64": 0.1,
		"kind.bool": true, "kind.string": "añ", "kind.strings": []string{"a", "", "c"}, "kind.ints": []int32{1, 2, 3}, "kind.floats": []float32{0.5, 1.5},
	} {
		assert.Equal(t, want, f.Value(key), key)
	}
	n, err := f.Int("kind.u16")
	require.NoError(t, err)
	assert.Equal(t, 60000, n)
	ints, err := f.Ints("kind.u8", 3)
	require.NoError(t, err)
	assert.Equal(t, []int{200, 200, 200}, ints)
	_, err = f.Ints("kind.ints", 2)
	require.ErrorIs(t, err, gguf.ErrValue)
	_, err = f.Text("kind.strng")
	require.ErrorIs(t, err, gguf.ErrMissing)
	require.ErrorContains(t, err, `did you mean "kind.string"`)
	_, err = f.Float("kind.bool")
	require.ErrorIs(t, err, gguf.ErrValue)
	_, err = f.Bool("kind.f32")
	require.ErrorIs(t, err, gguf.ErrValue)
	_, err = gguf.Array[string](f, "kind.ints")
	require.ErrorIs(t, err, gguf.ErrValue)
}

// Blocks of all types have the values that llama.cpp's package computes, bit for bit.
func TestDecode(t *testing.T) {
	f := open(t, blocks)
	n := 0
	for _, x := range f.Tensors {
		if !f.HasTensor(x.Name + ".float") {
			continue
		}
		n++
		want, got := floats(t, f, x.Name+".float"), floats(t, f, x.Name)
		for i := range want {
			if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] != 0 || got[i] != 0) {
				require.Failf(t, "", "%s: element %d is %v, expected %v", x.Name, i, got[i], want[i])
			}
		}
		elements, _ := x.Type.BlockSize()
		part := make([]float32, elements)
		require.NoError(t, f.Float32s(part, &x, elements))
		assert.Equal(t, got[elements:2*elements], part)
		if elements > 1 {
			require.ErrorIs(t, f.Float32s(part, &x, 1), gguf.ErrFormat)
		}
	}
	assert.Equal(t, 13, n)
}

// Quantised blocks have the bytes that llama.cpp's package and ggml write.
func TestQuantize(t *testing.T) {
	f := open(t, blocks)
	x := floats(t, f, "x")
	for _, name := range gguf.Writable() {
		if !f.HasTensor("x." + name) {
			continue
		}
		want, err := f.Tensor("x." + name)
		require.NoError(t, err)
		got := make([]byte, want.Size())
		require.NoError(t, gguf.Quantize(got, x, want.Type))
		require.NoError(t, f.WithBytes(want, func(data []byte) error {
			different := 0
			for i := range data {
				if data[i] != got[i] {
					different++
				}
			}
			assert.Zero(t, different, "%s: of %d bytes", name, len(data))
			return nil
		}))
	}
	require.ErrorIs(t, gguf.Quantize(nil, nil, gguf.Q5_1), gguf.ErrUnsupported)
	require.ErrorIs(t, gguf.Quantize(make([]byte, 34), x[:33], gguf.Q8_0), gguf.ErrFormat)
}

// What is written is read back: keys, tensors and bytes.
func TestWrite(t *testing.T) {
	f, path := open(t, blocks), filepath.Join(t.TempDir(), "copy.gguf")
	var entries []gguf.Entry
	for i := range f.Tensors {
		x := &f.Tensors[i]
		entries = append(entries, gguf.Entry{Name: x.Name, Type: x.Type, Shape: x.Shape, Write: func(w io.Writer) error {
			return f.WithBytes(x, func(b []byte) error { _, err := w.Write(b); return err })
		}})
	}
	require.NoError(t, gguf.Write(path, f.Keys, entries))
	want, err := os.ReadFile(blocks)
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	entries[0].Write = func(io.Writer) error { return nil }
	require.ErrorIs(t, gguf.Write(path, nil, entries[:1]), gguf.ErrFormat)
	require.ErrorIs(t, gguf.Write(path, []gguf.KeyValue{{Key: "a", Value: 1}}, nil), gguf.ErrValue)
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, again, "a failure changes nothing")
}

// Broken files are rejected with the reason.
func TestBroken(t *testing.T) {
	whole, err := os.ReadFile(blocks)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.gguf")
	for name, c := range map[string]struct {
		data []byte
		err  error
		says string
	}{
		"empty":      {nil, gguf.ErrTruncated, ""},
		"other":      {[]byte("PK\x03\x04 and more"), gguf.ErrFormat, `begins with "PK`},
		"version":    {[]byte("GGUF\x09\x00\x00\x00"), gguf.ErrUnsupported, "version 9"},
		"big-endian": {[]byte("GGUF\x00\x00\x00\x03"), gguf.ErrUnsupported, "big-endian"},
		"header":     {whole[:300], gguf.ErrTruncated, "bytes that follow"},
		"tensors":    {whole[:len(whole)-40], gguf.ErrTruncated, "the file ends at"},
		"counts":     {append([]byte("GGUF\x03\x00\x00\x00"), []byte(strings.Repeat("\xff", 16))...), gguf.ErrTruncated, "do not fit"},
	} {
		require.NoError(t, os.WriteFile(path, c.data, 0o666))
		_, err := gguf.Open(path)
		require.ErrorIs(t, err, c.err, name)
		require.ErrorContains(t, err, c.says, name)
		require.ErrorContains(t, err, path)
	}
	_, err = gguf.Open(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = gguf.Open(t.TempDir())
	require.Error(t, err)
	assert.True(t, gguf.IsFile(blocks))
	assert.True(t, gguf.IsFile("none.gguf"))
	assert.False(t, gguf.IsFile("gguf_test.go"))
}

// FuzzOpen: any bytes give an error, or a file whose tensors are all readable.
func FuzzOpen(f *testing.F) {
	whole, err := os.ReadFile(blocks)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole[:1<<12])
	f.Add(whole)
	f.Add([]byte("GGUF\x03\x00\x00\x00" + strings.Repeat("\x00", 16)))
	path := filepath.Join(f.TempDir(), "x.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		file, err := gguf.Open(path)
		if err != nil {
			return
		}
		defer file.Close()
		for i := range file.Tensors {
			x := &file.Tensors[i]
			if x.Size() > len(data) {
				t.Fatalf("tensor %q has %d bytes in a file of %d", x.Name, x.Size(), len(data))
			}
			if err := file.Float32s(make([]float32, x.Elements()), x, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}
