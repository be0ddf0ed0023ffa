package safetensors

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawSegments draws stretches of a file, in order but possibly on top of each
// other, with parts of memory for them that are aligned or not.
func drawSegments(t *rapid.T, size int64, memory []byte) (segments []segment) {
	at, used := int64(0), int64(0)
	for range rapid.IntRange(0, 6).Draw(t, "segments") {
		at = min(max(0, at+rapid.Int64Range(-5000, 50_000).Draw(t, "gap")), size)
		n := min(rapid.SampledFrom([]int64{1, 511, 4096, 70_000, leastStraight + 5000, bounceSize + 12_345}).Draw(t, "length"), size-at)
		switch rapid.SampledFrom([]string{"near", "far", "same"}).Draw(t, "memory") {
		case "far":
			used += rapid.Int64Range(1, 100).Draw(t, "skip")
		case "same":
			used = roundUp(used, pageAlign) + at%pageAlign
		}
		if n > 0 {
			segments = append(segments, segment{at, memory[used : used+n : used+n]})
			used, at = used+n, at+n
		}
	}
	return segments
}

// However the memory lies, each way to fill it gives the bytes of the file and
// writes no others.
func TestFill(t *testing.T) {
	v := bigFile(t, 6<<20)
	data, err := os.ReadFile(v.file.path)
	require.NoError(t, err)
	plan, err := PlanLoad([]*View{v}, LoadOptions{ChunkSize: 16 << 20})
	require.NoError(t, err)
	l := newLoader(plan, newGather([]*View{v}), LoadOptions{})
	defer l.close()
	f := l.feeds[0]
	f.open(Direct)
	var w worker
	defer w.close()
	memory, err := newArena(40 << 20)
	require.NoError(t, err)
	defer memory.free()
	rapid.Check(t, func(t *rapid.T) {
		s := f.possible(rapid.SampledFrom([]Strategy{Mmap, Pread, Direct}).Draw(t, "strategy"))
		segments := drawSegments(t, int64(len(data)), memory.data)
		w.segments = append(w.segments[:0], segments...)
		at, err := w.fill(f, &plan.Chunks[0], s)
		require.NoError(t, err, at)
		for _, s := range segments {
			require.True(t, bytes.Equal(data[s.offset:s.end()], s.memory))
		}
	})
}

// Where a file ends before it should, all say at which byte.
func TestFillFindsTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(path, noise(10_000), 0o600))
	f, err := Open(bigFile(t, 20_000).file.path)
	require.NoError(t, err)
	defer f.Close()
	f.path = path // as if it had shrunk
	f.info, err = os.Stat(path)
	require.NoError(t, err)
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	memory := func(n int) []byte {
		m := make([]byte, n+int(pageAlign))
		return m[int64(-address(m))&(pageAlign-1):][:n]
	}
	var w worker
	defer w.close()
	for _, segments := range [][]segment{
		{{5000, memory(10_000)}},
		{{0, memory(3 << 20)}},
		{{100, memory(50)}, {9_999, memory(2)}},
	} {
		w.segments = segments
		at, err := w.fillByPread(file)
		require.Equal(t, io.ErrUnexpectedEOF, err)
		require.Equal(t, int64(10_000), at)
		direct, a, err := openDirect(f)
		if err != nil {
			continue
		}
		w.segments = segments
		at, err = w.fillDirect(direct, a)
		require.Equal(t, io.ErrUnexpectedEOF, err)
		require.Equal(t, int64(10_000), at)
		require.NoError(t, direct.Close())
	}
	require.NoError(t, file.Close())
	_, err = w.fillByPread(file)
	require.Error(t, err)
	require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
}
