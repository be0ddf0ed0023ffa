package safetensors

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func address(data []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(data))) }

// Tensors are aligned, apart from each other, and none seems to be just ahead of
// its file.
func TestHostBufferLayout(t *testing.T) {
	path, data := noiseFile(t, 1_000_000)
	rapid.Check(t, func(t *rapid.T) {
		f, err := OpenExternal(path, drawPlaced(t, len(data)), nil)
		require.NoError(t, err)
		defer f.Close()
		views, err := f.Views()
		require.NoError(t, err)
		b, err := NewHostBuffer(views)
		require.NoError(t, err)
		defer b.Close()
		taken := map[int64]int64{} // end by begin
		wanted := int64(0)
		for i, v := range b.Views() {
			require.Equal(t, views[i].Name, v.Name)
			require.Equal(t, views[i].Shape, v.Shape)
			require.Equal(t, views[i].DType, v.DType)
			n := int64(v.Len())
			require.Equal(t, int64(views[i].Len()), n)
			if n == 0 {
				continue
			}
			wanted += n
			at := int64(address(v.data))
			require.Zero(t, at%tensorAlign)
			if ahead := (at - views[i].begin) % pageAlign; n >= pageAlign {
				require.False(t, 0 < ahead && ahead < tensorAlign, ahead)
				if n >= worthPlacing && views[i].begin%tensorAlign == 0 {
					require.Zero(t, ahead)
				}
			}
			for begin, end := range taken {
				require.True(t, at >= end || at+n <= begin)
			}
			taken[at] = at + n
		}
		require.LessOrEqual(t, b.Size(), wanted+int64(len(views))*2*tensorAlign+int64(len(views))*pageAlign)
	})
}

// A large tensor is where its file has it within a page, if that is aligned, so
// that direct reads need no copy.
func TestHostBufferPlacesLargeTensors(t *testing.T) {
	path, _ := noiseFile(t, 1_000_000)
	f, err := OpenExternal(path, []ExternalTensor{
		{Name: "small", DType: U8, Shape: []int{8}},
		{Name: "aligned", DType: U8, Shape: []int{worthPlacing}, Offset: 64 * 77},
		{Name: "next", DType: U8, Shape: []int{100}, Offset: 64*77 + worthPlacing},
		{Name: "not aligned", DType: U8, Shape: []int{worthPlacing}, Offset: 64*80 + worthPlacing + 8},
	}, nil)
	require.NoError(t, err)
	defer f.Close()
	views, err := f.Views()
	require.NoError(t, err)
	b, err := NewHostBuffer(views)
	require.NoError(t, err)
	defer b.Close()
	at := func(i int) int64 { return int64(address(b.Views()[i].data)) }
	assert.Equal(t, int64(64*77)%pageAlign, at(1)%pageAlign)
	assert.Equal(t, at(1)+worthPlacing, at(2), "neighbours stay neighbours")
	assert.Less(t, at(3)-at(2)-100, int64(2*tensorAlign), "nothing is gained by a gap")
}

func TestLoadHost(t *testing.T) {
	views, want := mixed(t)
	b, stats, err := LoadHost(t.Context(), views[:6], LoadOptions{})
	require.NoError(t, err)
	assert.Positive(t, stats.Bytes)
	assert.Equal(t, 6, b.Len())
	assert.Len(t, b.Names(), 6)
	for i, v := range views[:6] {
		c := lookup(t, b, v.Name)
		got, err := As[uint8](&View{Name: c.Name, DType: U8, Shape: c.Shape, file: c.file, data: c.data})
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want[i], got))
		if len(got) > 0 {
			got[0] ^= 0xff // it is private
			assert.NotEqual(t, want[i], c.Bytes())
			require.NoError(t, v.WithBytes(func(data []byte) error { assert.True(t, bytes.Equal(want[i], data)); return nil }))
		}
	}
	big, err := lookup(t, b, "big").Rows(5, 10)
	require.NoError(t, err)
	floats, err := As[float32](big)
	require.NoError(t, err)
	assert.Len(t, floats, 5)

	_, err = b.Lookup("bog")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `nearest: "big"`)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	_, err = b.Lookup("big")
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, b.Reset(views), ErrClosed)
	_, err = Load(t.Context(), views[:6], b, LoadOptions{})
	require.ErrorIs(t, err, ErrClosed)

	_, _, err = LoadHost(t.Context(), views, LoadOptions{Threads: -1})
	require.ErrorIs(t, err, ErrRange)
	_, err = b.Slot(t.Context(), nil)
	require.ErrorIs(t, err, ErrRange)
}

// Views of one name are told apart by their number only.
func TestHostBufferNames(t *testing.T) {
	v := bigFile(t, 1000)
	first, err := v.Rows(0, 500)
	require.NoError(t, err)
	b, _, err := LoadHost(t.Context(), []*View{v, first}, LoadOptions{})
	require.NoError(t, err)
	defer b.Close()
	_, err = b.Lookup("w")
	require.ErrorIs(t, err, ErrDuplicateTensor)
	assert.Equal(t, noise(1000), b.Views()[0].Bytes())
	assert.Equal(t, noise(1000)[:500], b.Views()[1].Bytes())

	_, err = Load(t.Context(), []*View{first, v}, b, LoadOptions{})
	require.ErrorIs(t, err, ErrRange)
	require.ErrorContains(t, err, "made for other views")
}

// A second load uses the pages of the first.
func TestHostBufferReset(t *testing.T) {
	v := bigFile(t, 5<<20)
	views := []*View{v}
	b, _, err := LoadHost(t.Context(), views, LoadOptions{})
	require.NoError(t, err)
	defer b.Close()
	old := b.Views()[0]
	where := address(b.memory.data)
	require.NoError(t, old.WithBytes(func([]byte) error {
		require.ErrorIs(t, b.Reset(views), ErrInUse)
		require.ErrorIs(t, b.Close(), ErrInUse)
		return nil
	}))
	for range 3 {
		runtime.GC() // what cleans up after the old views must not take the memory
		require.NoError(t, b.Reset(views))
		require.Equal(t, where, address(b.memory.data))
		_, err = Load(t.Context(), views, b, LoadOptions{})
		require.NoError(t, err)
		require.NoError(t, b.Views()[0].WithBytes(func(data []byte) error { require.True(t, bytes.Equal(noise(5<<20), data)); return nil }))
	}
	require.ErrorIs(t, old.WithBytes(func([]byte) error { return nil }), ErrClosed)
	require.Nil(t, old.Bytes())

	small, err := v.Rows(0, 10)
	require.NoError(t, err)
	require.NoError(t, b.Reset([]*View{small}))
	require.Equal(t, where, address(b.memory.data), "smaller fits")
	require.NoError(t, b.Reset([]*View{v, v}))
	require.GreaterOrEqual(t, b.Size(), int64(10<<20))
}

// Bytes that were handed out for good are not written over.
func TestHostBufferResetLeavesBytes(t *testing.T) {
	v := bigFile(t, 3<<20)
	views := []*View{v}
	b, _, err := LoadHost(t.Context(), views, LoadOptions{})
	require.NoError(t, err)
	old := b.Views()[0]
	data := old.Bytes()
	require.NoError(t, b.Reset(views))
	require.NotEqual(t, address(data), address(b.Views()[0].data))
	require.True(t, bytes.Equal(noise(3<<20), data))
	_, err = Load(t.Context(), views, b, LoadOptions{})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	runtime.GC()
	require.True(t, bytes.Equal(noise(3<<20), data), "not after Close either")
	runtime.KeepAlive(old)
}

// A load keeps the buffer from closing, and its views can be read while others
// are loaded into another buffer.
func TestHostBufferWhileLoading(t *testing.T) {
	v := bigFile(t, int(20*pageAlign))
	b, err := NewHostBuffer([]*View{v})
	require.NoError(t, err)
	sink := newGather([]*View{v})
	sink.done = func(*Chunk) error {
		assert.ErrorIs(t, b.Close(), ErrInUse)
		assert.ErrorIs(t, b.Reset(nil), ErrInUse)
		return nil
	}
	_, err = Load(t.Context(), []*View{v}, both{b, sink}, LoadOptions{ChunkSize: pageAlign})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			c, _, err := LoadHost(context.Background(), b.Views(), LoadOptions{})
			if assert.NoError(t, err) {
				assert.True(t, bytes.Equal(noise(v.Len()), c.Views()[0].Bytes()), "from a copy")
				assert.NoError(t, c.Close())
			}
		})
	}
	wg.Wait()
	require.NoError(t, b.Close())
}

// Tensors that are next to each other, but not in memory, come in one call.
func TestSegmentsJoin(t *testing.T) {
	memory := make([]byte, 100)
	var w worker
	w.addSegment(segment{10, memory[0:10]})
	w.addSegment(segment{20, memory[10:15]})
	require.Len(t, w.segments, 1)
	require.Len(t, w.segments[0].memory, 15)
	w.addSegment(segment{26, memory[15:20]})
	require.Len(t, w.segments, 2, "not next in the file")
	w.addSegment(segment{31, memory[21:22]})
	require.Len(t, w.segments, 3, "not next in memory")
	w.segments[2].memory = w.segments[2].memory[:1:1]
	w.addSegment(segment{32, memory[22:23]})
	require.Len(t, w.segments, 4, "of another allocation, as far as one can know")
}

// More pieces than one call takes.
func TestManyPieces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "many.safetensors")
	var entries []Entry
	data := noise(5000)
	for i := range 2500 {
		entries = append(entries, Entry{Name: fmt.Sprintf("%04d", i), DType: U8, Shape: []int{1 + i%3}, Data: data[i : i+1+i%3]})
	}
	require.NoError(t, WriteFile(path, entries, nil))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	views, err := f.Views()
	require.NoError(t, err)
	for s := Auto; s <= Direct; s++ {
		b, _, err := LoadHost(t.Context(), views, LoadOptions{Strategy: s})
		require.NoError(t, err)
		for _, e := range entries {
			require.Equal(t, e.Data, lookup(t, b, e.Name).Bytes())
		}
		require.NoError(t, b.Close())
	}
}
