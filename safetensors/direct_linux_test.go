package safetensors

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// In memory there is nothing to bypass: the load goes another way and says so.
func TestNoDirectReads(t *testing.T) {
	var fs unix.Statfs_t
	if unix.Statfs("/dev/shm", &fs) != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skip("needs a tmpfs")
	}
	dir, err := os.MkdirTemp("/dev/shm", "safetensors")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "x.safetensors")
	require.NoError(t, WriteFile(path, []Entry{{Name: "w", DType: U8, Shape: []int{100_000}, Data: noise(100_000)}}, nil))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	views, err := f.Views()
	require.NoError(t, err)
	for s, why := range map[Strategy]string{Direct: "no direct reads: the file is in memory", Auto: "100 % cached; too little for trials"} {
		sink := newGather(views)
		stats, err := Load(t.Context(), views, sink, LoadOptions{Strategy: s})
		require.NoError(t, err)
		assert.True(t, bytes.Equal(noise(100_000), sink.got[0]))
		assert.Equal(t, Pread, stats.Strategy)
		assert.True(t, strings.HasPrefix(stats.Why, why), stats.Why)
	}
}

// direct opens a file of n bytes for direct reads, or skips the test.
func direct(t *testing.T, n int) (*loader, *feed) {
	t.Helper()
	v := bigFile(t, n)
	plan, err := PlanLoad([]*View{v}, LoadOptions{ChunkSize: 64 << 10})
	require.NoError(t, err)
	l := newLoader(plan, newGather([]*View{v}), LoadOptions{Strategy: Direct})
	t.Cleanup(l.close)
	f := l.feeds[0]
	f.open(Direct)
	if f.direct == nil {
		t.Skip(f.noDirect)
	}
	return l, f
}

// A file system that takes the flag and then refuses to read is found out, and
// the load goes on in another way.
func TestDirectReadsRefused(t *testing.T) {
	l, f := direct(t, 500_000)
	f.align = alignment{1, 1} // it does not take that
	sink := l.sink.(*gather)
	l.sink = misplaced{sink}
	require.NoError(t, l.run(t.Context(), 3))
	stats := l.stats(1)
	assert.True(t, bytes.Equal(noise(500_000), sink.got[0]))
	assert.Equal(t, Pread, stats.Strategy)
	assert.Contains(t, stats.Why, "no direct reads: refused by the file system")
}

// misplaced has slots that are not aligned.
type misplaced struct{ *gather }

func (m misplaced) Slot(_ context.Context, c *Chunk) ([]byte, error) {
	return make([]byte, c.Length+1)[1:], nil
}

// Tensors that lie where direct reads can put them are not copied.
func TestDirectReadsStraight(t *testing.T) {
	_, f := direct(t, 5<<20)
	memory, err := newArena(5 << 20)
	require.NoError(t, err)
	defer memory.free()
	var w worker
	defer w.close()
	w.segments = []segment{{f.align.offset, memory.data[:4<<20]}}
	_, err = w.fillDirect(f.direct, f.align)
	require.NoError(t, err)
	require.Nil(t, w.bounce.data)
	require.Equal(t, int64(4<<20), w.read)
	w.segments = []segment{{f.align.offset, memory.data[1 : 4<<20]}} // these are
	_, err = w.fillDirect(f.direct, f.align)
	require.NoError(t, err)
	require.NotNil(t, w.bounce.data)
}

func TestMincore(t *testing.T) {
	v := bigFile(t, 1<<20)
	in, of, ok := mincore(v.file.mapping.data)
	require.True(t, ok)
	assert.Equal(t, roundUp(int64(len(v.file.mapping.data)), pageSize)/pageSize, of)
	assert.Equal(t, of, in, "it was written just now")

	closed, err := os.Open(v.file.path)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, _, ok = sampleCache(closed, v.file.mapping.data, 0, pageSize)
	assert.False(t, ok)
}

// What is in the page cache is known chunk by chunk, and Auto goes by it.
func TestAutoGoesByThePageCache(t *testing.T) {
	v := bigFile(t, 4<<20)
	file, err := os.Open(v.file.path)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Sync())
	dropCache(t, v.file.path)
	if in, of := cachedPages(t, v.file.path); in > of/100 {
		t.Skipf("%d of %d pages stay in memory whatever one does", in, of)
	}
	exactly(file, true) // no reading ahead
	_, err = file.ReadAt(make([]byte, 2<<20), 0)
	require.NoError(t, err)

	views := []*View{v}
	plan, err := PlanLoad(views, LoadOptions{ChunkSize: 64 << 10})
	require.NoError(t, err)
	f := newLoader(plan, newGather(views), LoadOptions{}).feeds[0]
	f.open(Pread)
	defer f.close()
	n := len(plan.Chunks)
	for i := range plan.Chunks {
		switch {
		case i < n/2-1:
			assert.True(t, f.isCached(&plan.Chunks[i]), i)
		case i > n/2+1:
			assert.False(t, f.isCached(&plan.Chunks[i]), i)
		}
	}
	assert.InDelta(t, 0.5, f.share, 0.05)

	sink := newGather(views)
	stats, err := plan.Load(t.Context(), sink, LoadOptions{Threads: 1})
	require.NoError(t, err)
	assert.True(t, bytes.Equal(noise(4<<20), sink.got[0]))
	var cached, uncached []Strategy
	for _, trial := range stats.Trials {
		if trial.Cached {
			cached = append(cached, trial.Strategy)
		} else {
			uncached = append(uncached, trial.Strategy)
		}
	}
	assert.Equal(t, []Strategy{Pread, Mmap}, cached)
	if f.openDirect(); f.direct != nil {
		assert.Equal(t, []Strategy{Pread, Direct}, uncached)
		assert.Contains(t, stats.Why, "where not cached")
	}
	assert.Regexp(t, "^(49|5[01]) % cached", stats.Why)
}
