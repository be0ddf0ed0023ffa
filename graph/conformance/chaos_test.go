package conformance

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func wildCPU(t *testing.T) backend.Device {
	t.Helper()
	return opened(t, func() (backend.Device, error) {
		dev, err := openCPU()
		return Chaos(dev, 2), err
	})
}

// TestChaosIsADevice runs the suite's own promises on a device in chaos.
func TestChaosIsADevice(t *testing.T) { runDevice(t, wildCPU(t)) }

func TestChaosPoisonsWhatIsNotDone(t *testing.T) {
	dev := wildCPU(t)
	b := alloc(t, dev, 4)
	got := []byte{1, 2, 3, 4}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	block := make(chan struct{})
	dev.(*chaos).enqueue(func() error { <-block; return nil })
	f, err := dev.Download(got, b, 0)
	require.NoError(t, err)
	assert.Equal(t, poison(4), got, "until the download is done")
	require.ErrorIs(t, f.Wait(ended), context.Canceled)
	close(block)
	require.NoError(t, f.Wait(context.Background()))
	assert.Equal(t, []byte{0, 0, 0, 0}, got)
}

func TestChaosFindsWhatIsFreedTooEarly(t *testing.T) {
	dev := wildCPU(t)
	b := alloc(t, dev, 4)
	block := make(chan struct{})
	dev.(*chaos).enqueue(func() error { <-block; return nil })
	f, err := dev.Upload(b, 0, []byte{1, 2, 3, 4})
	require.NoError(t, err)
	b.Free()
	close(block)
	require.ErrorIs(t, f.Wait(context.Background()), backend.ErrClosed)
}

func TestChaosFindsFencesThatAreHeldTooLong(t *testing.T) {
	dev := wildCPU(t)
	e, err := dev.Compile(negate(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	args := backend.Args{Buffers: []backend.Buffer{alloc(t, dev, 8), alloc(t, dev, 8)}, Dims: []int{0}}
	f, err := e.Run(context.Background(), args)
	require.NoError(t, err)
	for range backend.MaxInFlight {
		require.NoError(t, f.Wait(context.Background()))
		_, err := e.Run(context.Background(), args)
		require.NoError(t, err)
	}
	require.ErrorContains(t, f.Wait(context.Background()), "after 4 more runs")
}

// TestChaosFindsMemoryThatWasNotWritten runs a program that reads what no
// launch has made.
func TestChaosFindsMemoryThatWasNotWritten(t *testing.T) {
	typ := ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(2)}
	p := &ir.Program{Bounds: make([]ir.Bound, 1), Args: []ir.Arg{{Name: "y", Type: typ, Written: true}}, Arena: 64,
		Launches: []ir.Launch{{Op: ir.Unary, Attr: ir.UnaryAttr{Fn: ir.Exp},
			In: []ir.Ref{{Space: ir.SpaceArena, Type: typ}}, Out: []ir.Ref{{Space: ir.SpaceArg, Type: typ}}}}}
	require.ErrorContains(t, p.Verify(), "was not written")
	dev := wildCPU(t)
	e, err := dev.Compile(p)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	y := alloc(t, dev, 8)
	require.NoError(t, wait(e.Run(context.Background(), backend.Args{Buffers: []backend.Buffer{y}, Dims: []int{0}})))
	got := make([]byte, 8)
	download(t, dev, got, y)
	assert.True(t, math.IsNaN(decode(tensor.F32, got)[0]), "zeros of fresh memory would have hidden it")
}
