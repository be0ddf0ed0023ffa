package torchfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// checkOpen opens bytes and reads every tensor, of which it demands what must
// hold for any file.
func checkOpen(t testing.TB, data []byte) {
	tensors, err := openBytes(data)
	if err != nil {
		var format *FormatError
		require.True(t, errors.As(err, &format), "%v", err)
		require.NotEmpty(t, err.Error())
		return
	}
	names := map[string]bool{}
	var read int64
	for _, l := range tensors {
		require.False(t, names[l.name])
		names[l.name] = true
		require.True(t, utf8.ValidString(l.name))
		e := safetensors.Entry{Name: l.name, DType: l.dtype, Shape: l.shape}
		size, err := e.Size()
		require.NoError(t, err)
		require.Equal(t, size, l.view.size)
		if l.inPlace {
			require.LessOrEqual(t, l.offset+size, int64(len(data)))
		}
		if read += size; read > 1<<20 {
			return // what follows would only take time
		}
		b := make([]byte, size)
		n, err := l.ReadAt(b, 0)
		if int64(n) < size {
			require.ErrorIs(t, err, ErrZip) // deflated bytes are not looked at before
			continue
		}
		if size > 3 {
			part := make([]byte, 3)
			n, _ := l.ReadAt(part, size-3)
			require.Equal(t, b[size-3:][:n], part[:n])
		}
	}
}

func goldenFiles(t testing.TB) map[string][]byte {
	files := map[string][]byte{}
	for _, pattern := range []string{"testdata/read/*.pt", "testdata/refused/*"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			files[filepath.Base(path)] = raw
		}
	}
	require.NotEmpty(t, files)
	return files
}

func FuzzOpen(f *testing.F) {
	for _, data := range goldenFiles(f) {
		if len(data) < 4<<10 {
			f.Add(data)
		}
	}
	f.Add(archived(otherPickle, someData, someData))
	f.Add(legacyFile(otherPickle, []string{"0", "1"}, someData, someData))
	f.Fuzz(func(t *testing.T, data []byte) { checkOpen(t, data) })
}

func FuzzPickle(f *testing.F) {
	for _, data := range goldenFiles(f) {
		a, err := readArchive(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			continue
		}
		for i := range a.records {
			if x, err := a.locate(i); err == nil && filepath.Base(x.record) == pickleRecord && !x.deflated && x.size < 4<<10 {
				f.Add(data[x.at:][:x.size])
			}
		}
	}
	f.Add(otherPickle)
	f.Fuzz(func(t *testing.T, pickle []byte) {
		in := newInput(bytes.NewReader(pickle), int64(len(pickle)))
		m := newMachine(in, storageOf)
		v, err := m.run()
		require.GreaterOrEqual(t, m.left, int64(maxMemory-1000*(len(pickle)+100)), "memory in proportion to the pickle, but for copies")
		if err == nil {
			require.LessOrEqual(t, in.at, in.size)
			for _, wanted := range []func(any) bool{isTensor, isScalar} {
				var found []named
				if found, err = flatten(v, wanted, true); err != nil {
					break
				}
				for _, n := range found {
					scalar(n.value)
				}
			}
		}
		if err != nil {
			var format *FormatError
			require.True(t, errors.As(err, &format), "%v", err)
		}
	})
}

// Files with any one byte changed are read or refused.
func TestChangedBytes(t *testing.T) {
	for name, data := range goldenFiles(t) {
		changes := []byte{0xff}
		if os.Getenv("LORAFUSE_LONG") != "" {
			changes = []byte{0x01, 0x80, 0xff}
		} else if len(data) > 1500 {
			continue
		}
		if name == "protocol4_long.pt" || name == "long.pt" {
			continue
		}
		for at := range data {
			for _, change := range changes {
				data[at] ^= change
				checkOpen(t, data)
				data[at] ^= change
			}
		}
	}
}

// The seeds of the fuzz targets are read as they should.
func TestSeeds(t *testing.T) {
	raw, err := os.ReadFile("testdata/goldens.json")
	require.NoError(t, err)
	var goldens struct{ Read, Refused map[string]any }
	require.NoError(t, json.Unmarshal(raw, &goldens))
	require.Len(t, goldenFiles(t), len(goldens.Read)+len(goldens.Refused))
}
