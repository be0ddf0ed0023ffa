package safetensors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

// gather is a sink with a slot for every chunk, which puts tensors together.
type gather struct {
	views []*View
	mu    sync.Mutex
	got   [][]byte
	slots int
	done  func(*Chunk) error // called first
}

func newGather(views []*View) *gather {
	g := &gather{views: views, got: make([][]byte, len(views))}
	for i, v := range views {
		g.got[i] = make([]byte, v.Len())
	}
	return g
}

func (g *gather) Slot(_ context.Context, c *Chunk) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots++
	return bytes.Repeat([]byte{0xee}, int(c.Length)), nil
}

func (g *gather) Done(c *Chunk, data []byte) error {
	if g.done != nil {
		if err := g.done(c); err != nil {
			return err
		}
	}
	if int64(len(data)) != c.Length {
		return fmt.Errorf("%d bytes for a chunk of %d", len(data), c.Length)
	}
	for _, p := range c.Parts { // each part has a place of its own: no lock
		copy(g.got[p.View][p.From:p.From+p.Length], data[p.At:])
	}
	return nil
}

// mixed is a model in a few files of several kinds, and what its views hold.
func mixed(t testing.TB) (views []*View, want [][]byte) {
	t.Helper()
	data := noise(700_000)
	entries := []Entry{
		{Name: "big", DType: F32, Shape: []int{125_000}, Data: data[:500_000]},
		{Name: "odd", DType: U8, Shape: []int{7, 13}, Data: data[:91]},
		{Name: "empty", DType: F32, Shape: []int{0, 5}},
		{Name: "half", DType: F16, Shape: []int{33, 3}, Data: data[1000:1198]},
		{Name: "scalar", DType: I64, Data: data[5:13]},
		{Name: "next", DType: U8, Shape: []int{100_001}, Data: data[77:100_078]},
	}
	dir := t.TempDir()
	add := func(f *File, err error) {
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, f.Close()) })
		of, err := f.Views()
		require.NoError(t, err)
		for _, v := range of {
			b, err := io.ReadAll(io.NewSectionReader(v, 0, int64(v.Len())))
			require.NoError(t, err)
			views, want = append(views, v), append(want, b)
		}
	}
	for i := range 2 {
		path := filepath.Join(dir, fmt.Sprint(i, ".safetensors"))
		require.NoError(t, WriteFile(path, entries, map[string]string{"pad": fmt.Sprint(i * 100_000)}))
		add(Open(path))
	}
	var text bytes.Buffer
	require.NoError(t, Write(&text, entries, nil))
	add(FromBytes(text.Bytes()))
	add(OpenReaderAt(bytes.NewReader(text.Bytes()), int64(text.Len()), "remote"))
	path := filepath.Join(dir, "placed")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	add(OpenExternal(path, []ExternalTensor{
		{Name: "in place", DType: U8, Shape: []int{300_000}, Offset: 3},
		{Name: "computed", DType: U8, Shape: []int{200, 1000}, Reader: bytes.NewReader(data[11:])},
		{Name: "shared", DType: U8, Shape: []int{300_000}, Offset: 100_000},
	}, nil))

	// Parts of tensors are views, too.
	computed := views[slices.IndexFunc(views, func(v *View) bool { return v.Name == "computed" })]
	rows, err := computed.Rows(50, 150)
	require.NoError(t, err)
	columns, err := computed.Slice(Span{0, 200}, Span{10, 20})
	require.NoError(t, err)
	for _, v := range []*View{rows, columns.View()} {
		b, err := io.ReadAll(io.NewSectionReader(v, 0, int64(v.Len())))
		require.NoError(t, err)
		views, want = append(views, v), append(want, b)
	}
	return views, want
}

// All kinds of sources, options and sinks give the same bytes.
func TestLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	views, want := mixed(t)
	buffer, err := NewHostBuffer(nil)
	require.NoError(t, err)
	defer buffer.Close()
	rapid.Check(t, func(t *rapid.T) {
		var some []*View
		var wanted [][]byte
		for i := range rapid.IntRange(0, 2*len(views)).Draw(t, "n") {
			n := rapid.IntRange(0, len(views)-1).Draw(t, fmt.Sprint("view ", i))
			some, wanted = append(some, views[n]), append(wanted, want[n])
		}
		o := drawLoadOptions(t)
		var stats LoadStats
		var err error
		switch rapid.SampledFrom([]string{"slots", "ring", "host"}).Draw(t, "sink") {
		case "slots":
			sink := newGather(some)
			stats, err = Load(context.Background(), some, sink, o)
			require.NoError(t, err)
			for i := range wanted {
				require.True(t, bytes.Equal(wanted[i], sink.got[i]), some[i].Name)
			}
		case "ring":
			o.ChunkSize = 5 * pageAlign
			ring := newRing(t, some, 3, o.ChunkSize)
			stats, err = Load(context.Background(), some, ring, o)
			require.NoError(t, err)
			ring.close()
			for i := range wanted {
				require.True(t, bytes.Equal(wanted[i], ring.device[i]), some[i].Name)
			}
		case "host":
			require.NoError(t, buffer.Reset(some))
			stats, err = Load(context.Background(), some, buffer, o)
			require.NoError(t, err)
			for i, v := range buffer.Views() {
				require.NoError(t, v.WithBytes(func(data []byte) error { require.True(t, bytes.Equal(wanted[i], data), v.Name); return nil }))
			}
		}
		var total int64
		for _, w := range wanted {
			total += int64(len(w))
		}
		require.Equal(t, total, stats.Bytes)
		for _, f := range stats.Files {
			require.NotEmpty(t, f.Why)
		}
	})
}

func TestLoadOfNothing(t *testing.T) {
	stats, err := Load(t.Context(), nil, newGather(nil), LoadOptions{})
	require.NoError(t, err)
	assert.Zero(t, stats.Bytes)
	assert.Zero(t, stats.Threads)
	assert.Zero(t, stats.BytesPerSecond())
}

// bigFile is a file of one tensor of n bytes, opened, and a view of it.
func bigFile(t *testing.T, n int) *View {
	t.Helper()
	path := filepath.Join(t.TempDir(), "big.safetensors")
	require.NoError(t, WriteFile(path, []Entry{{Name: "w", DType: U8, Shape: []int{n}, Data: noise(n)}}, nil))
	f, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return lookup(t, f, "w")
}

// As many readers as asked for are at work at the same time.
func TestLoadThreads(t *testing.T) {
	defer goleak.VerifyNone(t)
	const threads = 5
	v := bigFile(t, int(20*pageAlign))
	var at atomic.Int32
	together := make(chan struct{})
	sink := newGather([]*View{v})
	sink.done = func(*Chunk) error {
		if at.Add(1) == threads {
			close(together)
		}
		select {
		case <-together:
			return nil
		case <-time.After(time.Minute):
			return errors.New("too few readers")
		}
	}
	stats, err := Load(t.Context(), []*View{v}, sink, LoadOptions{Threads: threads, ChunkSize: pageAlign})
	require.NoError(t, err)
	assert.Equal(t, threads, stats.Threads)
	assert.True(t, bytes.Equal(noise(v.Len()), sink.got[0]))

	stats, err = Load(t.Context(), []*View{v}, newGather([]*View{v}), LoadOptions{Threads: 50, ChunkSize: 8 * pageAlign})
	require.NoError(t, err)
	assert.Equal(t, 3, stats.Threads, "no more than there are chunks")
}

func TestLoadFirstErrorEndsIt(t *testing.T) {
	defer goleak.VerifyNone(t)
	v := bigFile(t, int(100*pageAlign))
	failure := errors.New("failure")
	sink := &failingThird{gather: newGather([]*View{v}), failure: failure}
	sink.done = sink.third
	stats, err := Load(t.Context(), []*View{v}, sink, LoadOptions{Threads: 2, ChunkSize: pageAlign})
	require.Equal(t, failure, err)
	assert.LessOrEqual(t, sink.calls.Load(), int32(4), "the other reader may have had a chunk")
	assert.LessOrEqual(t, stats.Bytes, 4*pageAlign)

	_, err = Load(t.Context(), []*View{v}, failingSink{slot: failure}, LoadOptions{})
	require.Equal(t, failure, err)
	_, err = Load(t.Context(), []*View{v}, failingSink{memory: 10}, LoadOptions{})
	require.ErrorIs(t, err, ErrRange)
	require.ErrorContains(t, err, "a slot of 10 bytes")
	_, err = Load(t.Context(), []*View{v}, failingPlaces{failingSink{slot: failure}}, LoadOptions{})
	require.Equal(t, failure, err)
	_, err = Load(t.Context(), []*View{v}, failingPlaces{failingSink{memory: 10}}, LoadOptions{})
	require.ErrorIs(t, err, ErrRange)
	require.ErrorContains(t, err, "a place of 10 bytes")
}

// failingThird fails with the third chunk, and has no slots from then on.
type failingThird struct {
	*gather
	failure error
	calls   atomic.Int32
}

func (s *failingThird) third(*Chunk) error {
	if s.calls.Add(1) == 3 {
		return s.failure
	}
	return nil
}

func (s *failingThird) Slot(ctx context.Context, c *Chunk) ([]byte, error) {
	if s.calls.Load() >= 3 {
		<-ctx.Done() // which the failure must bring about
		return nil, context.Cause(ctx)
	}
	return s.gather.Slot(ctx, c)
}

// failingSink gives no slots, or too little memory.
type failingSink struct {
	slot   error
	memory int
}

func (s failingSink) Slot(context.Context, *Chunk) ([]byte, error) {
	return make([]byte, s.memory), s.slot
}
func (s failingSink) Done(*Chunk, []byte) error { return nil }

type failingPlaces struct{ failingSink }

func (s failingPlaces) Place(*Chunk, Part) ([]byte, error) { return make([]byte, s.memory), s.slot }

// waiting is a sink that never has a slot.
type waiting struct{ asked chan struct{} }

func (s waiting) Slot(ctx context.Context, _ *Chunk) ([]byte, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
func (s waiting) Done(*Chunk, []byte) error { return nil }

func TestLoadIsCancelled(t *testing.T) {
	defer goleak.VerifyNone(t)
	v := bigFile(t, int(10*pageAlign))
	ctx, cancel := context.WithCancel(t.Context())
	sink := waiting{asked: make(chan struct{}, 10)}
	go func() { <-sink.asked; <-sink.asked; cancel() }()
	_, err := Load(ctx, []*View{v}, sink, LoadOptions{Threads: 2, ChunkSize: pageAlign})
	require.ErrorIs(t, err, context.Canceled)

	_, err = Load(ctx, []*View{v}, newGather([]*View{v}), LoadOptions{})
	require.ErrorIs(t, err, context.Canceled, "before it has begun")
	ctx, cancel = context.WithTimeoutCause(t.Context(), 0, errors.New("too late"))
	defer cancel()
	_, err = Load(ctx, []*View{v}, newGather([]*View{v}), LoadOptions{})
	require.ErrorContains(t, err, "too late")
}

func TestLoadAndClose(t *testing.T) {
	v := bigFile(t, 100_000)
	sink := newGather([]*View{v})
	sink.done = func(*Chunk) error {
		if !errors.Is(v.file.Close(), ErrInUse) {
			return errors.New("could be closed")
		}
		return nil
	}
	_, err := Load(t.Context(), []*View{v}, sink, LoadOptions{})
	require.NoError(t, err)
	require.NoError(t, v.file.Close())
	other := bigFile(t, 100)
	_, err = Load(t.Context(), []*View{other, v}, sink, LoadOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = Populate(t.Context(), []*View{v}, LoadOptions{})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, Advise([]*View{other, v}, AdviseRandom), ErrClosed)
	require.NoError(t, other.file.Close(), "nothing was kept")
}

// A file that is cut short before or during a load is an error that names it.
func TestLoadOfShrinkingFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be cut short")
	}
	for _, host := range []bool{false, true} {
		for s := Auto; s <= Direct; s++ {
			for _, during := range []bool{false, true} {
				v := bigFile(t, 1<<20)
				cut := func(*Chunk) error { return os.Truncate(v.file.path, 100_000) }
				sink := newGather([]*View{v})
				if during {
					sink.done = cut
				} else {
					require.NoError(t, cut(nil))
				}
				var target Sink = sink
				if host {
					b, err := NewHostBuffer([]*View{v})
					require.NoError(t, err)
					defer b.Close()
					target = both{b, sink}
				}
				_, err := Load(t.Context(), []*View{v}, target, LoadOptions{Strategy: s, ChunkSize: 64 << 10, Threads: 1})
				require.Error(t, err)
				require.True(t, errors.Is(err, ErrTruncated) || errors.Is(err, ErrFault), "%v: %v", s, err)
				require.ErrorContains(t, err, v.file.path)
				require.ErrorContains(t, err, `tensor "w"`)
			}
		}
	}
}

// both is a HostBuffer with the Done of another sink.
type both struct {
	*HostBuffer
	sink *gather
}

func (b both) Done(c *Chunk, _ []byte) error {
	if b.sink.done == nil {
		return nil
	}
	return b.sink.done(c)
}

// Readers that fail, or promise more than they have.
func TestLoadFromBadReader(t *testing.T) {
	data := file(`{"a":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}}`, 1000)
	failure := errors.New("line is cut")
	r := &failing{data: data}
	f, err := OpenReaderAt(r, int64(len(data)), "remote")
	require.NoError(t, err)
	v := lookup(t, f, "a")
	r.data, r.err = data[:len(data)-10], failure
	_, err = Load(t.Context(), []*View{v}, newGather([]*View{v}), LoadOptions{})
	require.ErrorIs(t, err, ErrFault)
	require.ErrorIs(t, err, failure)
	require.ErrorContains(t, err, `remote: tensor "a": byte `+fmt.Sprint(len(data)-10))
	r.err = io.EOF
	_, err = Load(t.Context(), []*View{v}, newGather([]*View{v}), LoadOptions{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

type failing struct {
	data []byte
	err  error
}

func (r *failing) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, r.data[min(off, int64(len(r.data))):])
	if n < len(p) {
		return n, r.err
	}
	return n, nil
}

// What was opened is loaded, even if its name is another file's by now.
func TestLoadOfReplacedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a mapped file cannot be replaced")
	}
	for s, what := range map[Strategy]string{Auto: "another file is there now", Pread: "another file is there now", Direct: "no such file"} {
		v := bigFile(t, 100_000)
		if what == "no such file" {
			require.NoError(t, os.Remove(v.file.path))
		} else {
			require.NoError(t, WriteFile(v.file.path, []Entry{{Name: "w", DType: U8, Shape: []int{100_000}, Data: make([]byte, 100_000)}}, nil))
		}
		sink := newGather([]*View{v})
		stats, err := Load(t.Context(), []*View{v}, sink, LoadOptions{Strategy: s})
		require.NoError(t, err)
		assert.True(t, bytes.Equal(noise(100_000), sink.got[0]))
		assert.Equal(t, Mmap, stats.Strategy)
		assert.Contains(t, stats.Why, "cannot be opened again: ")
		assert.Contains(t, stats.Why, what)
	}
}

// The statistics say what was done.
func TestLoadStats(t *testing.T) {
	views, _ := mixed(t)
	why := map[string]string{}
	stats, err := Load(t.Context(), views, newGather(views), LoadOptions{Strategy: Pread})
	require.NoError(t, err)
	assert.Equal(t, Pread, stats.Strategy)
	assert.Equal(t, "as asked", stats.Why)
	for _, f := range stats.Files {
		why[filepath.Base(f.Path)+" "+f.Strategy.String()] = f.Why
		assert.Positive(t, f.Elapsed)
		assert.Positive(t, f.BytesPerSecond())
		assert.GreaterOrEqual(t, f.Read, f.Bytes-int64(300_000), f.Path) // two views share 200,000 bytes
	}
	assert.Equal(t, map[string]string{
		"0.safetensors pread": "as asked",
		"1.safetensors pread": "as asked",
		". mmap":              "in memory already",
		"remote pread":        "read through an io.ReaderAt",
		"placed pread":        "read through an io.ReaderAt", // the last of several
	}, why)
	assert.Regexp(t, `^0\.00\d GB in .*s: \d+\.\d\d GB/s by pread \(as asked\), \d threads, \d+ files$`, stats.String())
	require.Len(t, stats.Files, 8, "computed tensors stand alone")
	assert.Equal(t, []string{"placed", "placed", "placed", "placed"}, slices.Collect(func(yield func(string) bool) {
		for _, f := range stats.Files[4:] {
			yield(filepath.Base(f.Path))
		}
	}))
}

// Auto tries what there is on the first chunks, and says so.
func TestLoadAuto(t *testing.T) {
	v := bigFile(t, int(40*pageAlign))
	sink := newGather([]*View{v})
	stats, err := Load(t.Context(), []*View{v}, sink, LoadOptions{ChunkSize: pageAlign, Threads: 2})
	require.NoError(t, err)
	assert.True(t, bytes.Equal(noise(v.Len()), sink.got[0]))
	if stats.Files[0].Cached < 0 {
		assert.Contains(t, stats.Why, "the system does not say what is cached")
	} else {
		assert.Contains(t, stats.Why, "% cached")
	}
	tried := map[Strategy]int{}
	for _, trial := range stats.Trials {
		assert.Positive(t, trial.BytesPerSecond)
		tried[trial.Strategy] = trial.Chunks
	}
	assert.Len(t, tried, 2, stats.Why)
	assert.Equal(t, mostRounds, slices.Min(slices.Collect(maps.Values(tried))))

	stats, err = Load(t.Context(), []*View{v}, newGather([]*View{v}), LoadOptions{})
	require.NoError(t, err)
	assert.Empty(t, stats.Trials)
	assert.Contains(t, stats.Why, "too little for trials")
}
