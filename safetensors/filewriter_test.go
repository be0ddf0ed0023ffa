package safetensors

import (
	"bytes"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func noise(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	return data
}

// Whatever comes in whatever pieces, copied or not, is in the file in its order.
func TestFileWriter(t *testing.T) {
	near := []int{0, 0, 0, 100, 100, 100, copyBelow, copyBelow, copyBelow, writeBuffer, writeTogether}
	if raceDetector {
		near = near[:len(near)-2] // it looks at every byte
	}
	source := noise(near[len(near)-1] + 1000)
	path := filepath.Join(t.TempDir(), "x")
	rapid.Check(t, func(t *rapid.T) {
		f, err := os.Create(path)
		require.NoError(t, err)
		defer f.Close()
		w := &fileWriter{f: f}
		defer w.release()
		var want, got maphash.Hash
		got.SetSeed(want.Seed())
		var written int64
		size := rapid.Custom(func(t *rapid.T) int {
			n := rapid.SampledFrom(near).Draw(t, "near")
			return max(0, n+rapid.IntRange(-1, 1).Draw(t, "off"))
		})
		changing := make([]byte, 0, writeTogether+1)
		for range rapid.IntRange(0, 10).Draw(t, "pieces") {
			n := size.Draw(t, "n")
			from := rapid.IntRange(0, len(source)-n).Draw(t, "from")
			for range rapid.SampledFrom([]int{1, 1, 1, 5, 1100}).Draw(t, "times") {
				p := source[from : from+n]
				want.Write(p)
				written += int64(n)
				if rapid.Bool().Draw(t, "keep") {
					require.NoError(t, w.keep(p))
				} else {
					changing = append(changing[:0], p...)
					got, err := w.Write(changing)
					require.NoError(t, err)
					require.Equal(t, n, got)
					clear(changing)
				}
				require.Less(t, len(w.pending), mostPieces)
				if n > 200 {
					break
				}
			}
		}
		require.NoError(t, w.flush())
		require.NoError(t, w.flush())
		require.Equal(t, written, w.written)
		_, err = f.Seek(0, io.SeekStart)
		require.NoError(t, err)
		n, err := io.Copy(&got, f)
		require.NoError(t, err)
		require.Equal(t, written, n)
		require.Equal(t, want.Sum64(), got.Sum64())
	})
}

// Memory that stays as it is is not copied, but for small pieces; those are in
// the fewest calls.
func TestFileWriterCopiesLittle(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	require.NoError(t, err)
	defer f.Close()
	w := &fileWriter{f: f}
	large := make([]byte, copyBelow)
	require.NoError(t, w.keep(large))
	require.Len(t, w.pending, 1)
	assert.Same(t, &large[0], &w.pending[0][0])
	for range 10 {
		require.NoError(t, w.keep(large[1:]))
		require.NoError(t, w.keep(large[:1]))
	}
	require.Len(t, w.pending, 1)
	assert.Equal(t, 10*len(large), w.used)
	require.NoError(t, w.keep(large))
	require.Len(t, w.pending, 3)
	assert.Equal(t, 12*len(large), w.size)
	assert.Zero(t, w.written)
	for w.written == 0 {
		require.NoError(t, w.keep(large))
	}
	assert.Empty(t, w.pending)
	assert.Zero(t, w.size)
	assert.True(t, w.written >= writeTogether || w.written >= (mostPieces-10)*copyBelow, w.written)
	written := w.written
	huge := make([]byte, writeBuffer+1)
	_, err = w.Write(huge)
	require.NoError(t, err)
	assert.Equal(t, written+writeBuffer+1, w.written, "not kept, because it may change")

	// The buffer is used to the last byte before it is written.
	w = &fileWriter{f: f}
	small := make([]byte, copyBelow-1)
	for w.used+len(small) <= writeBuffer {
		require.NoError(t, w.keep(small))
	}
	require.NoError(t, w.keep(small[:writeBuffer-w.used]))
	assert.Zero(t, w.written)
	require.NoError(t, w.keep(small[:1]))
	assert.EqualValues(t, writeBuffer, w.written)
	assert.Equal(t, 1, w.used)
	require.NoError(t, w.keep(large))
	require.NoError(t, w.keep(small[:2]))
	require.NoError(t, w.keep(large))
	assert.Equal(t, 3+2*len(large), w.size)
	w.release()
	assert.Nil(t, w.buffer)
}

// No call has more pieces than a system takes.
func TestFileWriterPieces(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	require.NoError(t, err)
	defer f.Close()
	large := make([]byte, copyBelow)
	for _, first := range []int{0, 1} { // even and odd numbers of them
		w := &fileWriter{f: f}
		for range first {
			require.NoError(t, w.keep(large))
		}
		most := 0
		for w.written == 0 {
			require.NoError(t, w.keep(large[:1]))
			require.NoError(t, w.keep(large))
			require.LessOrEqual(t, len(w.pending), mostPieces)
			most = max(most, len(w.pending))
		}
		assert.Greater(t, most, mostPieces-4)
		w.release()
	}
	w := &fileWriter{f: f}
	require.NoError(t, w.keep(large))
	w.release() // that had no need of the buffer
	w = &fileWriter{f: f}
	_, err = w.Write(large)
	require.NoError(t, err)
	require.NoError(t, w.flush())
}

// Errors come from the file, and stop the writer.
func TestFileWriterErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := os.Open(path) // for reading only
	require.NoError(t, err)
	defer f.Close()
	for name, write := range map[string]func(w *fileWriter) error{
		"large":       func(w *fileWriter) error { return w.keep(make([]byte, writeTogether)) },
		"large write": func(w *fileWriter) error { _, err := w.Write(make([]byte, writeBuffer+1)); return err },
		"small": func(w *fileWriter) error {
			n, err := w.Write(make([]byte, writeBuffer))
			require.NoError(t, err)
			require.Equal(t, writeBuffer, n)
			n, err = w.Write(make([]byte, 1))
			require.Zero(t, n)
			return err
		},
		"flush": func(w *fileWriter) error { require.NoError(t, w.keep(make([]byte, 1))); return w.flush() },
	} {
		assert.Error(t, write(&fileWriter{f: f}), name)
	}
	_, err = f.Seek(0, io.SeekStart)
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	assert.Empty(t, text)
}

// A tensor of a mapped file is handed on in pieces; other writers get it whole.
func TestViewsInPieces(t *testing.T) {
	dir := t.TempDir()
	data := noise(2*writeTogether + 5)
	source := filepath.Join(dir, "source")
	require.NoError(t, WriteFile(source, []Entry{{Name: "x", DType: U8, Shape: []int{len(data)}, Data: data}}, nil))
	f, err := Open(source)
	require.NoError(t, err)
	defer f.Close()
	v := lookup(t, f, "x")
	require.NoError(t, WriteFile(filepath.Join(dir, "copy"), []Entry{v.Entry()}, nil))
	want, err := os.ReadFile(source)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "copy"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))

	var calls []int
	require.NoError(t, Write(writerFunc(func(p []byte) (int, error) { calls = append(calls, len(p)); return len(p), nil }), []Entry{v.Entry()}, nil))
	assert.Equal(t, []int{len(want) - len(data), len(data)}, calls)
}
