//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

var ways = []backend.LoadMode{backend.LoadRing, backend.LoadRegister, backend.LoadPlain, backend.LoadAuto}

// waysHere are the ways of this device: real ones need not be able to register.
func waysHere(t *testing.T) []backend.LoadMode {
	t.Helper()
	if simulated() {
		return ways
	}
	_, err := loader(t, backend.LoadRegister).Load(t.Context(), asStored(viewsOf(t, written(t, fileOf(1000)))))
	if errors.Is(err, backend.ErrLoad) {
		t.Log(err)
		return slices.DeleteFunc(slices.Clone(ways), func(l backend.LoadMode) bool { return l == backend.LoadRegister })
	}
	require.NoError(t, err)
	return ways
}

func simulated() bool {
	path, _ := simtest.Find()
	return simtest.Simulated(path)
}

// loader opens a device with a small ring: four slots of 64 KiB at least, six
// at most, windows of 128 KiB, trials of as much.
func loader(t *testing.T, way backend.LoadMode) *cuda.Device {
	t.Helper()
	dev := opened(t, backend.Options{Load: way})
	dev.LoadSizes(64<<10, 128<<10, 128<<10, 64<<10)
	return dev
}

// fileOf is a file of bytes of these sizes, whose data begins at an odd place.
func fileOf(sizes ...int) []byte {
	var header strings.Builder
	at := 0
	for i, n := range sizes {
		fmt.Fprintf(&header, `,"t%03d":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, i, n, at, at+n)
		at += n
	}
	text := "{" + strings.TrimPrefix(header.String(), ",") + "}"
	if len(text)%2 == 0 {
		text += " "
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(file, text...), gputest.Noise(at, uint64(at))...)
}

// written opens a file of its own.
func written(t *testing.T, content []byte) *safetensors.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func viewsOf(t *testing.T, f *safetensors.File) []*safetensors.View {
	t.Helper()
	views, err := f.Views()
	require.NoError(t, err)
	return views
}

// asStored asks for views as they are.
func asStored(views []*safetensors.View) []backend.Weight {
	weights := make([]backend.Weight, len(views))
	for i, v := range views {
		d, err := tensor.ParseDType(v.DType.String())
		if err != nil {
			panic(err)
		}
		weights[i] = backend.Weight{View: v, DType: d}
	}
	return weights
}

// same requires that buffers hold the bytes of views, each at a place that
// vectors can be read from.
func same(t *testing.T, dev backend.Device, views []*safetensors.View, buffers []backend.Buffer) {
	t.Helper()
	require.Len(t, buffers, len(views))
	for i, v := range views {
		require.Equal(t, v.Len(), buffers[i].Size())
		got := make([]byte, v.Len())
		gputest.Wait(t)(dev.Download(got, buffers[i], 0))
		require.NoError(t, v.WithBytes(func(want []byte) error {
			require.True(t, bytes.Equal(want, got), "%s, %d bytes", v.Name, len(want))
			return nil
		}))
		require.Zero(t, cuda.Address(buffers[i])%256)
	}
}

// mixed are tensors of all sizes, from nothing to more than the ring holds, of
// mapped files, of one in memory and of one behind a reader, out of order, some
// of them twice, in parts and overlapping.
func mixed(t *testing.T) []*safetensors.View {
	sizes := []int{0, 1, 3, 255, 256, 257, 4095, 4096, 4097, 64 << 10, 64<<10 + 1, 1 << 20, 1234567, 512, 256, 2, 0}
	first := written(t, fileOf(sizes...))
	views := append(viewsOf(t, first), viewsOf(t, written(t, fileOf(300000, 7)))...)
	memory, err := safetensors.FromBytes(fileOf(100, 200000, 1))
	require.NoError(t, err)
	far := fileOf(5, 400001)
	behind, err := safetensors.OpenReaderAt(bytes.NewReader(far), int64(len(far)), "far")
	require.NoError(t, err)
	views = slices.Concat(views, viewsOf(t, memory), viewsOf(t, behind), views[8:10])
	part, err := views[11].Rows(12345, 234567)
	require.NoError(t, err)
	views = append(views, part)
	r := rand.New(rand.NewPCG(3, 1))
	r.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
	return views
}

func loadMixed(t *testing.T) {
	views := mixed(t)
	total := int64(0)
	for _, v := range views {
		total += int64(v.Len())
	}
	for _, way := range waysHere(t) {
		t.Run(way.String(), func(t *testing.T) {
			dev := loader(t, way)
			for range 2 {
				buffers, err := dev.Load(t.Context(), asStored(views))
				require.NoError(t, err)
				same(t, dev, views, buffers)
				_, err = dev.Upload(buffers[0], 0, nil)
				require.Error(t, err, "weights are read-only")
				require.Positive(t, dev.Held())
				for _, b := range buffers {
					b.Free()
				}
				require.Zero(t, dev.Held())
			}
			s := dev.Loaded()
			require.Equal(t, 2*total, s.Bytes)
			require.Positive(t, s.BytesPerSecond)
			require.NotEmpty(t, s.Why)
			require.LessOrEqual(t, s.Pinned, int64(10*64<<10))
			if way != backend.LoadAuto {
				require.Equal(t, way, s.Mode)
				require.Equal(t, "as asked", s.Why)
			} else if simulated() {
				require.Len(t, s.Trials, 4)
				require.Regexp(t, `^the first 128.0 KiB: ring \d+\.\d\d GB/s, register \d+\.\d\d GB/s$`, s.Why)
			}
		})
	}
}

// The bytes are those of the files, by every way.
func TestLoad(t *testing.T) { loadMixed(t) }

// TestLoadLazily: with streams that go on only where somebody waits, a slot that
// is filled again too early shows, and so does a run that does not wait.
func TestLoadLazily(t *testing.T) {
	if onSimulator(t, "LFSIM_STREAMS=lazy") {
		loadMixed(t)
	}
}

func TestLoadNothing(t *testing.T) {
	for _, way := range waysHere(t) {
		dev := loader(t, way)
		none, err := dev.Load(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, none)
		empty := viewsOf(t, written(t, fileOf(0, 0)))
		buffers, err := dev.Load(t.Context(), asStored(empty))
		require.NoError(t, err)
		same(t, dev, empty, buffers)
		require.Zero(t, dev.Loaded().Bytes)
		for _, b := range buffers {
			b.Free()
		}
		require.Zero(t, dev.Held())
	}
}

// Neighbours go in one copy: as many as there are chunks, not tensors.
func TestLoadCoalesces(t *testing.T) {
	sizes := make([]int, 512)
	for i := range sizes {
		sizes[i] = 256 * (1 + i%3)
	}
	views := viewsOf(t, written(t, fileOf(sizes...)))
	dev := loader(t, backend.LoadRing)
	buffers, err := dev.Load(t.Context(), asStored(views))
	require.NoError(t, err)
	same(t, dev, views, buffers)
	require.LessOrEqual(t, dev.Loaded().Copies, 8, "262144 bytes in chunks of 64 KiB")
	same(t, dev, views, buffers)
}

// The ring is all the memory that is pinned, and what was copied from the mapping
// is given back.
func TestLoadMemory(t *testing.T) {
	views := viewsOf(t, written(t, fileOf(48<<20)))
	pinned := map[backend.LoadMode]int64{backend.LoadRing: 10 * 64 << 10, backend.LoadRegister: 2 * 128 << 10, backend.LoadPlain: 0, backend.LoadAuto: 10 * 64 << 10}
	for _, way := range waysHere(t) {
		dev, most := loader(t, way), pinned[way]
		before := resident(t, views[0])
		buffers, err := dev.Load(t.Context(), asStored(views))
		require.NoError(t, err)
		require.LessOrEqual(t, dev.Loaded().Pinned, most)
		require.LessOrEqual(t, resident(t, views[0]), before+1<<20, "%v", way)
		for _, b := range buffers {
			b.Free()
		}
	}
}

// resident is how many bytes of the file of a view this process has mapped
// pages of.
func resident(t *testing.T, v *safetensors.View) int {
	path, _, _ := v.Extent()
	raw, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(raw), path)
	require.True(t, ok)
	var kib int
	_, rss, _ := strings.Cut(after, "Rss:")
	_, err = fmt.Sscan(rss, &kib)
	require.NoError(t, err)
	return kib << 10
}

// endless is a file whose reader calls stop after some reads.
type endless struct {
	content *bytes.Reader
	reads   atomic.Int64
	stop    func()
	stopped chan struct{}
}

func (e *endless) ReadAt(p []byte, off int64) (int, error) {
	switch n := e.reads.Add(1); {
	case n == 12:
		e.stop()
		close(e.stopped)
	case n > 12:
		<-e.stopped
	}
	return e.content.ReadAt(p, off)
}

// stopped loads two megabytes, in the middle of which stop is called.
func stopped(t *testing.T, dev *cuda.Device, ctx context.Context, stop func()) error {
	t.Helper()
	content := fileOf(1<<20, 1<<20)
	r := &endless{content: bytes.NewReader(content), stop: stop, stopped: make(chan struct{})}
	f, err := safetensors.OpenReaderAt(r, int64(len(content)), "endless")
	require.NoError(t, err)
	buffers, err := dev.Load(ctx, asStored(viewsOf(t, f)))
	require.Nil(t, buffers)
	require.Less(t, r.reads.Load(), int64(30), "it did not go on to the end")
	return err
}

func TestLoadEnds(t *testing.T) {
	for _, way := range waysHere(t) {
		if way == backend.LoadPlain {
			continue // below
		}
		dev := loader(t, way)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		require.ErrorIs(t, stopped(t, dev, ctx, func() { cancel(why) }), why)
		require.Zero(t, dev.Held())
		views := viewsOf(t, written(t, fileOf(1<<20)))
		_, err := dev.Load(ctx, asStored(views))
		require.ErrorIs(t, err, why, "before it begins")
		buffers, err := dev.Load(t.Context(), asStored(views))
		require.NoError(t, err, "and the device goes on")
		same(t, dev, views, buffers)
	}
	dev := loader(t, backend.LoadPlain)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := dev.Load(ctx, asStored(viewsOf(t, written(t, fileOf(10)))))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, dev.Held())
}

// A device that is closed ends its loads, and waits for them.
func TestCloseWhileLoading(t *testing.T) {
	for _, way := range []backend.LoadMode{backend.LoadRing, backend.LoadAuto} {
		dev := loader(t, way)
		closed := make(chan error, 1)
		err := stopped(t, dev, t.Context(), func() {
			go func() { closed <- dev.Close() }()
			for !dev.Closing() {
				time.Sleep(time.Millisecond)
			}
		})
		require.ErrorIs(t, err, backend.ErrClosed)
		require.NoError(t, <-closed)
		_, err = dev.Load(t.Context(), nil)
		require.ErrorIs(t, err, backend.ErrClosed)
	}
}

// A file that was cut short is an error with its name, by every way that reads
// it on this side of the driver.
func TestLoadTruncated(t *testing.T) {
	for _, way := range []backend.LoadMode{backend.LoadRing, backend.LoadPlain, backend.LoadAuto} {
		dev := loader(t, way)
		content := fileOf(3 << 20)
		f := written(t, content)
		views := viewsOf(t, f)
		require.NoError(t, os.Truncate(f.Path(), 2<<20))
		_, err := dev.Load(t.Context(), asStored(views))
		require.True(t, errors.Is(err, safetensors.ErrFault) || errors.Is(err, safetensors.ErrTruncated), "%v: %v", way, err)
		require.ErrorContains(t, err, "t000")
		require.Zero(t, dev.Held())
	}
}

func TestLoadRefuses(t *testing.T) {
	dev := loader(t, backend.LoadRing)
	v := viewsOf(t, written(t, fileOf(64)))[0]
	_, err := dev.Load(t.Context(), []backend.Weight{{View: v, DType: tensor.Q8}})
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.ErrorContains(t, err, `tensor "t000"`)
}
