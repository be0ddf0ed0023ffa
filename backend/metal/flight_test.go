//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestFlights(t *testing.T) {
	dev := opened(t, backend.Options{})
	gputest.Flights(t, dev, dev.Unseen)
}

func TestYields(t *testing.T) {
	dev := opened(t, backend.Options{})
	gputest.Yields(t, dev, dev.Unseen)
}

func TestTraps(t *testing.T) {
	dev := opened(t, backend.Options{})
	gputest.Traps(t, dev, dev.Unseen)
}

func TestFreedUnderWay(t *testing.T) { gputest.FreedUnderWay(t, opened(t, backend.Options{})) }

func TestClosedUnderWay(t *testing.T) {
	need(t)
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	gputest.ClosedUnderWay(t, dev)
}

// TestUnaligned: copies of any bytes come in their turn too, while runs are under way,
// and change nothing beside them.
func TestUnaligned(t *testing.T) {
	dev := opened(t, backend.Options{})
	g := graph.New()
	e, err := g.Program().Result("y", g.Param("x", tensor.U32, ir.Static(8)).Slice(0, 0, 8)).Compile(dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	buffers := map[string]backend.Buffer{}
	for _, name := range []string{"x", "y"} {
		b, err := dev.Alloc(33)
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, e.Bind(name, b))
		buffers[name] = b
	}
	data := gputest.Noise(33, 5)
	gputest.Wait(t)(dev.Upload(buffers["x"], 0, data))
	var uploading sync.WaitGroup
	var down, end backend.Fence
	got, last := make([]byte, 13), make([]byte, 1)
	dev.Unseen(func() {
		_, err := e.Run(t.Context())
		require.NoError(t, err)
		down, err = dev.Download(got, buffers["y"], 5)
		require.NoError(t, err)
		end, err = dev.Download(last, buffers["y"], 32)
		require.NoError(t, err)
		uploading.Go(func() {
			f, err := dev.Upload(buffers["x"], 6, []byte{1, 2, 3})
			if assert.NoError(t, err) {
				assert.NoError(t, f.Wait(context.Background()))
			}
		})
		time.Sleep(50 * time.Millisecond) // it waits meanwhile
	})
	uploading.Wait()
	gputest.Wait(t)(down, nil)
	gputest.Wait(t)(end, nil)
	require.Equal(t, data[5:18], got, "as it was before the upload")
	require.Equal(t, []byte{0}, last)
	all := make([]byte, 33)
	gputest.Wait(t)(dev.Download(all, buffers["x"], 0))
	copy(data[6:], []byte{1, 2, 3})
	require.Equal(t, data, all)
}

// TestCopyAllocations: copies that no command is in the way of leave no garbage.
func TestCopyAllocations(t *testing.T) {
	dev := opened(t, backend.Options{})
	b, err := dev.Alloc(64)
	require.NoError(t, err)
	defer b.Free()
	data := make([]byte, 64)
	require.Zero(t, testing.AllocsPerRun(50, func() {
		gputest.Wait(t)(dev.Upload(b, 0, data))
		gputest.Wait(t)(dev.Download(data, b, 0))
	}))
}

// TestRunAllocations: so do runs, whether anybody waits for them or not.
func TestRunAllocations(t *testing.T) {
	e := gputest.Scaled(t, opened(t, backend.Options{}))
	require.Zero(t, testing.AllocsPerRun(50, func() { require.NoError(t, e.RunWait(t.Context())) }))
	require.Zero(t, testing.AllocsPerRun(50, func() {
		_, err := e.Run(t.Context())
		require.NoError(t, err)
	}))
}
