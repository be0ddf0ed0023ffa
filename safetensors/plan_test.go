package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// noiseFile writes n bytes of noise.
func noiseFile(t testing.TB, n int) (path string, data []byte) {
	t.Helper()
	data = noise(n)
	path = filepath.Join(t.TempDir(), "noise")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path, data
}

// drawPlaced draws tensors that lie anywhere in a file of the given size, side by
// side, far from each other, or on top of each other.
func drawPlaced(t *rapid.T, size int) []ExternalTensor {
	n := rapid.IntRange(0, 12).Draw(t, "tensors")
	var placed []ExternalTensor
	at := 0
	for i := range n {
		switch rapid.SampledFrom([]string{"next", "hole", "anywhere"}).Draw(t, "place") {
		case "hole":
			at += rapid.IntRange(0, size/4).Draw(t, "hole")
		case "anywhere":
			at = rapid.IntRange(0, size).Draw(t, "at")
		}
		at = min(at, size)
		length := min(rapid.SampledFrom([]int{0, 1, 7, 64, 4095, 4096, 4097, 30_000, size}).Draw(t, "length"), size-at)
		placed = append(placed, ExternalTensor{Name: fmt.Sprint("tensor ", i), DType: U8, Shape: []int{length}, Offset: int64(at)})
		at += length
	}
	return placed
}

func drawLoadOptions(t *rapid.T) LoadOptions {
	return LoadOptions{
		Threads:   rapid.IntRange(0, 4).Draw(t, "threads"),
		Strategy:  Strategy(rapid.IntRange(0, int(Direct)).Draw(t, "strategy")),
		ChunkSize: rapid.SampledFrom([]int64{0, pageAlign, pageAlign + 1, 5 * pageAlign, 1 << 20}).Draw(t, "chunk size"),
		MaxHole:   rapid.SampledFrom([]int64{-1, 0, 1, 4096, 20_000, math.MaxInt64}).Draw(t, "hole"),
	}
}

func TestPlanLoad(t *testing.T) {
	path, data := noiseFile(t, 300_001)
	rapid.Check(t, func(t *rapid.T) {
		f, err := OpenExternal(path, drawPlaced(t, len(data)), nil)
		require.NoError(t, err)
		defer f.Close()
		views, err := f.Views()
		require.NoError(t, err)
		o := drawLoadOptions(t)
		p, err := PlanLoad(views, o)
		require.NoError(t, err)

		var wanted, read int64
		covered := make([]int64, len(views)) // from the first byte of each view on
		var last *Chunk
		for i := range p.Chunks {
			c := &p.Chunks[i]
			require.Same(t, f, c.File)
			require.Zero(t, c.Offset%pageAlign)
			require.Zero(t, c.Offset%4096)
			require.True(t, c.Length%pageAlign == 0 || c.Offset+c.Length == int64(len(data)), "whole pages, but for the last")
			if o.ChunkSize > 0 {
				require.LessOrEqual(t, c.Length, o.ChunkSize)
			}
			require.NotEmpty(t, c.Parts)
			if last != nil {
				require.GreaterOrEqual(t, c.Offset, last.Offset+last.Length, "nothing is read twice, nor backwards")
				if c.Offset > last.Offset+last.Length && c.run != last.run {
					require.Greater(t, c.Offset-last.Offset-last.Length, o.maxHole(), "a small hole is read")
				}
			}
			last = c
			read += c.Length
			for j, part := range c.Parts {
				require.Positive(t, part.Length)
				require.LessOrEqual(t, part.At+part.Length, c.Length)
				require.Equal(t, covered[part.View], part.From, "each byte in exactly one part")
				require.Equal(t, views[part.View].begin+part.From, c.Offset+part.At)
				covered[part.View] += part.Length
				if j > 0 {
					require.GreaterOrEqual(t, part.At, c.Parts[j-1].At)
				}
			}
		}
		for i, v := range views {
			require.Equal(t, int64(v.Len()), covered[i])
			wanted += int64(v.Len())
		}
		require.Equal(t, wanted, p.Bytes)
		require.Equal(t, read, p.Read)
	})
}

// Holes are read through up to the size given, and not beyond it.
func TestPlanHoles(t *testing.T) {
	path, _ := noiseFile(t, 1<<20)
	place := func(hole int64) []*View {
		f, err := OpenExternal(path, []ExternalTensor{
			{Name: "a", DType: U8, Shape: []int{4096}, Offset: 0},
			{Name: "b", DType: U8, Shape: []int{4096}, Offset: 4096 + hole},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, f.Close()) })
		views, err := f.Views()
		require.NoError(t, err)
		return views
	}
	if pageAlign != 4096 {
		t.Skip("offsets are for pages of 4096 bytes")
	}
	for _, c := range []struct {
		hole, most int64
		chunks     int
	}{
		{0, -1, 1},
		{4096, -1, 2},
		{1, -1, 1}, // pages touch
		{4096, 4096, 1},
		{8192, 4096, 2},
		{defaultMaxHole, 0, 1},
		{defaultMaxHole + 4096, 0, 2},
	} {
		p, err := PlanLoad(place(c.hole), LoadOptions{MaxHole: c.most})
		require.NoError(t, err)
		assert.Len(t, p.Chunks, c.chunks, c)
		assert.Equal(t, int64(8192), p.Bytes)
	}
}

// Chunks are as few as can be, and of about the same length.
func TestPlanCuts(t *testing.T) {
	for _, c := range []struct {
		length int64
		pages  int64 // of a chunk at most
		want   []int64
	}{
		{10 * pageAlign, 5, []int64{5 * pageAlign, 5 * pageAlign}},
		{10*pageAlign + 1, 5, []int64{4 * pageAlign, 4 * pageAlign, 2*pageAlign + 1}},
		{10*pageAlign - 1, 5, []int64{5 * pageAlign, 5*pageAlign - 1}},
		{7 * pageAlign, 6, []int64{4 * pageAlign, 3 * pageAlign}},
		{3 * pageAlign, 1, []int64{pageAlign, pageAlign, pageAlign}},
		{1, 1, []int64{1}},
	} {
		path, _ := noiseFile(t, int(c.length))
		f, err := OpenExternal(path, []ExternalTensor{{Name: "a", DType: U8, Shape: []int{int(c.length)}}}, nil)
		require.NoError(t, err)
		p, err := PlanLoad([]*View{lookup(t, f, "a")}, LoadOptions{ChunkSize: c.pages * pageAlign})
		require.NoError(t, err)
		var got []int64
		for i := range p.Chunks {
			got = append(got, p.Chunks[i].Length)
		}
		assert.Equal(t, c.want, got, c)
		require.NoError(t, f.Close())
	}
}

// A chunk that would hold nothing but a hole is left out.
func TestPlanLeavesHolesOut(t *testing.T) {
	path, _ := noiseFile(t, int(10*pageAlign))
	f, err := OpenExternal(path, []ExternalTensor{
		{Name: "a", DType: U8, Shape: []int{1}, Offset: 0},
		{Name: "b", DType: U8, Shape: []int{1}, Offset: 9 * pageAlign},
	}, nil)
	require.NoError(t, err)
	defer f.Close()
	views, err := f.Views()
	require.NoError(t, err)
	p, err := PlanLoad(views, LoadOptions{ChunkSize: pageAlign, MaxHole: math.MaxInt64})
	require.NoError(t, err)
	require.Len(t, p.Chunks, 2)
	assert.Equal(t, 9*pageAlign, p.Chunks[1].Offset)
	assert.Equal(t, 2*pageAlign, p.Read)
}

func TestPlanOrderOfFiles(t *testing.T) {
	path, _ := noiseFile(t, 100_000)
	var views []*View
	for range 3 {
		f, err := OpenExternal(path, []ExternalTensor{{Name: "x", DType: U8, Shape: []int{100_000}}}, nil)
		require.NoError(t, err)
		defer f.Close()
		v := lookup(t, f, "x")
		late, err := v.Rows(50_000, 100_000)
		require.NoError(t, err)
		early, err := v.Rows(0, 50_000)
		require.NoError(t, err)
		views = append(views, late, early)
	}
	views[0], views[2] = views[2], views[0] // the second file comes first
	p, err := PlanLoad(views, LoadOptions{ChunkSize: 5 * pageAlign})
	require.NoError(t, err)
	var files []*File
	for i := range p.Chunks {
		c := &p.Chunks[i]
		if i == 0 || c.File != p.Chunks[i-1].File {
			files = append(files, c.File)
		} else {
			assert.Greater(t, c.Offset, p.Chunks[i-1].Offset)
		}
	}
	assert.Equal(t, []*File{views[0].file, views[1].file, views[4].file}, files)
}

// Files that are not in memory have no pages: nothing beside the tensors is asked
// for.
func TestPlanOfReaders(t *testing.T) {
	data := file(`{"a":{"dtype":"U8","shape":[10000],"data_offsets":[0,10000]},"b":{"dtype":"U8","shape":[7],"data_offsets":[10000,10007]}}`, 10_007)
	f, err := OpenReaderAt(bytes.NewReader(data), int64(len(data)), "remote")
	require.NoError(t, err)
	views, err := f.Views()
	require.NoError(t, err)
	p, err := PlanLoad(views, LoadOptions{ChunkSize: pageAlign})
	require.NoError(t, err)
	assert.Equal(t, int64(10_007), p.Bytes)
	assert.Equal(t, int64(10_007), p.Read)
	assert.Equal(t, f.start, p.Chunks[0].Offset)
	p, err = PlanLoad(views[1:], LoadOptions{})
	require.NoError(t, err)
	assert.Equal(t, int64(7), p.Read)
}

func TestPlanRefuses(t *testing.T) {
	for _, o := range []LoadOptions{{Threads: -1}, {Threads: 1025}, {ChunkSize: -1}, {ChunkSize: pageAlign - 1}, {Strategy: Direct + 1}} {
		_, err := PlanLoad(nil, o)
		require.ErrorIs(t, err, ErrRange, o)
		_, err = new(LoadPlan).Load(t.Context(), nil, o)
		require.ErrorIs(t, err, ErrRange, o)
	}
	// A source may promise more than any plan can hold.
	const size = int64(1) << 60
	if math.MaxInt < size {
		t.Skip("this machine has no such numbers")
	}
	head := file(fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%[1]d]}}`, size), 0)
	f, err := OpenReaderAt(bytes.NewReader(head), int64(len(head))+size, "liar")
	require.NoError(t, err)
	views, err := f.Views()
	require.NoError(t, err)
	_, err = PlanLoad(views, LoadOptions{})
	require.ErrorIs(t, err, ErrRange)
	require.ErrorContains(t, err, "liar")
	_, err = NewHostBuffer(views)
	require.ErrorContains(t, err, "1152921504606846976 bytes for 1 tensors")
	_, err = NewHostBuffer(slices.Repeat(views, 9))
	require.ErrorIs(t, err, ErrOverflow)
}

func TestDefaultChunks(t *testing.T) {
	for _, c := range []struct {
		total   int64
		threads int
		want    int64
	}{{0, 1, leastChunkSize}, {10 << 20, 2, 5 << 18}, {1 << 40, 1, defaultChunkSize}, {100 << 20, 4, roundUp(100<<20/16, pageAlign)}} {
		assert.Equal(t, c.want, (&LoadOptions{Threads: c.threads}).chunkSize(c.total), c)
	}
	n := new(LoadOptions).threads()
	assert.True(t, n >= leastThreads && n <= mostThreads, n)
}

func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Int64Range(1, 100), 1, 60).Draw(t, "lengths")
		chunks := make([]Chunk, len(lengths))
		for i, n := range lengths {
			chunks[i].Length = n
		}
		readers := rapid.IntRange(1, len(chunks)).Draw(t, "readers")
		l := newLanes(chunks, readers)
		next := 0
		for _, lane := range l.spans {
			require.Equal(t, next, lane.next)
			require.Greater(t, lane.end, lane.next, "each reader has something to do")
			next = lane.end
		}
		require.Equal(t, len(chunks), next)

		taken := make([]int, len(chunks))
		active := rapid.IntRange(1, readers).Draw(t, "active") // the others are slow
		for {
			number, ok := l.nextChunk(rapid.IntRange(0, active-1).Draw(t, "reader"))
			if !ok {
				break
			}
			taken[number]++
		}
		for i, n := range taken {
			require.Equal(t, 1, n, "chunk %d", i)
		}
	})
}

// Lanes of the same length, when chunks are.
func TestLanesAreFair(t *testing.T) {
	chunks := make([]Chunk, 12)
	for i := range chunks {
		chunks[i].Length = 5
	}
	assert.Equal(t, []chunkQueue{{0, 4}, {4, 8}, {8, 12}}, newLanes(chunks, 3).spans)
	l := newLanes(chunks, 2)
	for range 6 {
		l.nextChunk(0)
	}
	n, ok := l.nextChunk(0)
	assert.True(t, ok)
	assert.Equal(t, 9, n, "half of what the other has left")
	assert.Equal(t, chunkQueue{6, 9}, l.spans[1])
}
