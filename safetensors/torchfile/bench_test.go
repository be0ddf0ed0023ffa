package torchfile

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// largeZip writes a checkpoint of n float32 tensors of 2 MiB each, whose data
// takes no place on the disk, and returns its path.
func largeZip(tb testing.TB, n int) string {
	const size = 2 << 20
	parts := sparse{parts: map[int64][]byte{}}
	add := func(b []byte) { parts.parts[parts.size] = b; parts.size += int64(len(b)) }
	state := code{byte(opEmptyDict), byte(opMark)}
	for i := range n {
		key := fmt.Sprint(i)
		state = appendParts(state, []any{"model.layers." + key + ".weight", tensorCode(storageCode("FloatStorage", key, size/4), 0, tuple{512, 1024}, tuple{1024, 1})})
	}
	pickle := pickled(append(state, byte(opSetItems)))
	var directory []byte
	record := func(name string, data []byte, size int) {
		header := le.AppendUint32([]byte("PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)
		header = le.AppendUint32(header, 0)
		header = append(le.AppendUint16(header, uint16(len(name))), 0, 0)
		directory = append(directory, "PK\x01\x02\x00\x00\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
		directory = le.AppendUint32(le.AppendUint32(directory, uint32(size)), uint32(size))
		directory = append(le.AppendUint16(directory, uint16(len(name))), make([]byte, 12)...)
		directory = append(le.AppendUint32(directory, uint32(parts.size)), name...)
		add(append(header, name...))
		if data != nil {
			add(data)
		} else {
			parts.size += int64(size)
		}
	}
	record("archive/data.pkl", pickle, len(pickle))
	for i := range n {
		record(fmt.Sprintf("archive/data/%d", i), nil, size)
	}
	start, entries := parts.size, uint16(n+1)
	add(directory)
	end := le.AppendUint16(le.AppendUint16([]byte("PK\x05\x06\x00\x00\x00\x00"), entries), entries)
	add(append(le.AppendUint32(le.AppendUint32(end, uint32(len(directory))), uint32(start)), 0, 0))

	path := filepath.Join(tb.TempDir(), "large.pt")
	f, err := os.Create(path)
	require.NoError(tb, err)
	for at, b := range parts.parts {
		_, err := f.WriteAt(b, at)
		require.NoError(tb, err)
	}
	require.NoError(tb, f.Close())
	return path
}

// counting counts the bytes that are read.
type counting struct {
	*os.File
	read int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.read += int64(len(p))
	return c.File.ReadAt(p, off)
}

// Opening 1 GiB reads a thousandth of it, and the tensors lie in the file.
func TestOpenReadsNoStorages(t *testing.T) {
	path := largeZip(t, 512)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	require.Greater(t, info.Size(), int64(1<<30))
	r := &counting{File: f}
	c, err := read(r, info.Size())
	require.NoError(t, err)
	tensors, err := c.layout()
	require.NoError(t, err)
	require.Len(t, tensors, 512)
	for _, p := range tensors {
		require.True(t, p.inPlace)
	}
	require.Less(t, r.read, info.Size()/1000)

	file, err := Open(path)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1, 512} {
		path := largeZip(b, n)
		b.Run(fmt.Sprintf("%dMiB", 2*n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}

func BenchmarkGather(b *testing.B) {
	const side = 2048
	data := make([]byte, side*side*4)
	for name, v := range map[string]view{
		"transposed": {shape: []int64{side, side}, stride: []int64{1, side}},
		"columns":    {shape: []int64{side, side / 2}, stride: []int64{side, 1}},
		"swapped":    {shape: []int64{side * side}, stride: []int64{1}, swap: 4},
	} {
		b.Run(name, func(b *testing.B) {
			v.item, v.size, v.span = 4, v.shape[0]*4, int64(len(data))
			if len(v.shape) > 1 {
				v.size *= v.shape[1]
			}
			g := &gather{v, spanOf(data)}
			out := make([]byte, v.size)
			b.SetBytes(v.size)
			for b.Loop() {
				if _, err := g.ReadAt(out, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type spanOf []byte

func (s spanOf) withBytes(at, n int64, fn func([]byte) error) error { return fn(s[at:][:n]) }
func (s spanOf) Close() error                                       { return nil }
