//go:build cgo && metal && metalfake

package metal_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// single is a limit of command buffers that a kernel on few numbers takes alone: more than one launch needs, less than
// two.
const single = metal.EnvCommand + "=0.008"

// chain is y = n times the negative of x, of n launches.
func chain(t *testing.T, dev backend.Device, n int) *gputest.Bound {
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(64))
	y := x
	for range n {
		y = y.Apply(ir.Neg)
	}
	return gputest.Bind(t, dev, g.Program().Result("y", y))
}

// commands returns the number of command buffers that opening a device and running a chain of n launches once take.
func commands(t *testing.T, n int) (opening, run int) {
	metal.FakeCommands()
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	opening = metal.FakeCommands().Commands
	e := chain(t, dev, n)
	require.NoError(t, e.RunWait(t.Context()))
	run = metal.FakeCommands().Commands
	require.NoError(t, dev.Close())
	return opening, run
}

// A short run is one command buffer, a long one has as many as its estimate needs.
func TestCommands(t *testing.T) {
	_, run := commands(t, 5)
	require.Equal(t, 1, run)
	with(t, single)
	_, run = commands(t, 5)
	require.Equal(t, 5, run)
	with(t, metal.EnvCommand+"=0.013")
	_, run = commands(t, 5)
	require.Equal(t, 3, run)
	for _, bad := range []string{"0", "-1", "NaN", "Inf", "fast"} {
		with(t, metal.EnvCommand+"="+bad)
		_, err := metal.Open(backend.Options{})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, fmt.Sprintf("%s: found %q, expected a number of milliseconds above 0", metal.EnvCommand, bad))
	}
}

// An error in the third of five command buffers is the run's, with its meaning and a remedy. If the device is not lost,
// the next run is right.
func TestCommandFailures(t *testing.T) {
	with(t, single)
	opening, _ := commands(t, 5)
	remedy := "; set " + metal.EnvCommand + " below 0.008, close other programs that use the GPU, and connect the power adapter"
	for _, c := range []struct {
		way  string
		is   error // nil: none of package backend
		text []string
	}{
		{"timeout", backend.ErrTimeout, []string{"metal: device timeout: launch 2 Unary: a command took too long: ", "kIOGPUCommandBufferCallbackErrorTimeout", remedy}},
		{"hang", backend.ErrTimeout, []string{"a command took too long", "Caused GPU Hang", remedy}},
		{"interactivity", backend.ErrTimeout, []string{"a command delayed the display: ", "Impacting Interactivity (0000000e:", remedy}},
		{"memory", backend.ErrOutOfMemory, []string{"metal: out of memory: launch 2 Unary: the device has no memory for a command: ", "the working set of the device is 8.00 GiB"}},
		{"victim", nil, []string{"another program's command", "; run it again"}},
		{"background", nil, []string{"a process in the background", "a session that may use the display"}},
		{"ignored", backend.ErrLost, []string{"metal: device lost: ", "ignores commands of this process", "restart the program; if it happens again, " + remedy[2:]}},
		{"internal", backend.ErrLost, []string{"metal: device lost: launch 2 Unary: the device has failed"}},
	} {
		t.Run(c.way, func(t *testing.T) {
			with(t, fmt.Sprintf("LFSIM_METAL_FAIL=command:%s:%d", c.way, opening+3))
			dev, err := metal.Open(backend.Options{})
			require.NoError(t, err)
			defer dev.Close()
			e := chain(t, dev, 5)
			data := tensor.BytesOf([]float32{1, 2, 3})
			e.Set(t, "x", data)
			err = e.RunWait(context.Background())
			for _, is := range []error{backend.ErrTimeout, backend.ErrOutOfMemory, backend.ErrLost} {
				require.Equal(t, is == c.is, errors.Is(err, is), "%v: %v", is, err)
			}
			for _, text := range c.text {
				require.ErrorContains(t, err, text)
			}
			if c.is == backend.ErrLost {
				require.ErrorIs(t, e.RunWait(context.Background()), backend.ErrLost)
				return
			}
			require.NoError(t, e.RunWait(context.Background()))
			require.Equal(t, tensor.BytesOf([]float32{-1, -2, -3}), e.Get(t, "y", 12))
		})
	}
}

// At most 16 command buffers are on their way, with several long runs at a time.
func TestManyCommands(t *testing.T) {
	with(t, single)
	dev := opened(t, backend.Options{})
	e := chain(t, dev, 41)
	e.Set(t, "x", tensor.BytesOf([]float32{1, 2, 3}))
	metal.FakeCommands()
	var fences []backend.Fence
	for range 2 * backend.MaxInFlight {
		f, err := e.Run(t.Context())
		require.NoError(t, err)
		fences = append(fences, f)
	}
	for _, f := range fences {
		gputest.Wait(t)(f, nil)
	}
	c := metal.FakeCommands()
	require.Equal(t, 2*backend.MaxInFlight*41, c.Commands)
	require.LessOrEqual(t, c.MostOnTheWay, 16)
	require.Greater(t, c.MostOnTheWay, 1)
	require.Equal(t, tensor.BytesOf([]float32{-1, -2, -3}), e.Get(t, "y", 12))
}

// A run whose context ends stops between its command buffers.
func TestCancelBetweenCommands(t *testing.T) {
	with(t, single)
	dev := opened(t, backend.Options{})
	e := chain(t, dev, 41)
	e.Set(t, "x", tensor.BytesOf([]float32{1, 2, 3}))
	metal.FakeCommands()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var f backend.Fence
	dev.Unseen(func() {
		time.AfterFunc(50*time.Millisecond, cancel) // the run waits meanwhile
		var err error
		f, err = e.Run(ctx)
		require.NoError(t, err)
	})
	require.ErrorIs(t, f.Wait(context.Background()), context.Canceled)
	require.Equal(t, 16, metal.FakeCommands().Commands)
	require.NoError(t, e.RunWait(context.Background()))
	require.Equal(t, tensor.BytesOf([]float32{-1, -2, -3}), e.Get(t, "y", 12))
}

// Measured runs are divided too.
func TestProfiledCommands(t *testing.T) {
	with(t, metal.EnvCommand+"=0.002") // less than a launch needs
	profile := &backend.Profile{}
	dev := opened(t, backend.Options{Profile: profile})
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(64*1024))
	e := gputest.Bind(t, dev, g.Program().Result("y", x.Apply(ir.Neg)))
	metal.FakeCommands()
	require.NoError(t, e.RunWait(t.Context()))
	require.Greater(t, metal.FakeCommands().Commands, 2)
	require.Len(t, profile.Rows(), 1)
}

// step is a training step of a small language model with adapters: the loss and the gradients of the adapters.
func step(t *testing.T, dev backend.Device) *gputest.Bound {
	const rows, size, inter, rank, vocab, heads, layers = 40, 64, 96, 8, 150, 2, 3
	g := graph.New()
	var trained []graph.Tensor
	f32 := func(name string, shape ...int) graph.Tensor {
		return g.Param(name, tensor.F32, ir.ShapeOf(shape...)...)
	}
	linear := func(x graph.Tensor, name string, in, out int) graph.Tensor {
		a, b := f32(name+".a", rank, in), f32(name+".b", out, rank)
		trained = append(trained, a, b)
		return x.MatMulT(f32(name, out, in)).Add(x.MatMulT(a).MatMulT(b))
	}
	lo, hi := g.Param("lo", tensor.I32, ir.Static(rows)), g.Param("hi", tensor.I32, ir.Static(rows))
	x := f32("embedding", vocab, size).Gather(g.Param("ids", tensor.I32, ir.Static(rows)))
	for i := range layers {
		name := func(s string) string { return fmt.Sprintf("%d.%s", i, s) }
		y := x.RMSNorm(f32(name("norm1"), size), 1e-5)
		q, k, v := linear(y, name("q"), size, size), linear(y, name("k"), size, size), linear(y, name("v"), size, size)
		o := q.Attention(k, v, lo, hi, ir.AttentionAttr{Heads: heads, KVHeads: heads, HeadDim: size / heads, Scale: 0.2})
		x = x.Add(linear(o, name("o"), size, size))
		y = x.RMSNorm(f32(name("norm2"), size), 1e-5)
		x = x.Add(linear(linear(y, name("gate"), size, inter).GLU(linear(y, name("up"), size, inter), ir.SiLU), name("down"), inter, size))
	}
	loss := x.LinearCrossEntropy(f32("head", vocab, size), g.Param("labels", tensor.I32, ir.Static(rows)))
	p := g.Program().Result("loss", loss)
	for i, d := range g.Gradients(loss, trained, false) {
		p.Result(fmt.Sprintf("gradient%d", i), d)
	}
	e := gputest.Bind(t, dev, p)
	for i, a := range e.Program().Args {
		n := a.Type.Shape.Elements(nil)
		switch {
		case a.Written:
		case a.Name == "ids" || a.Name == "labels":
			ids := make([]int32, n)
			for k := range ids {
				ids[k] = int32((k*37 + 11) % vocab)
			}
			e.Set(t, a.Name, tensor.BytesOf(ids))
		case a.Name == "lo" || a.Name == "hi":
			ends := make([]int32, n)
			for k := range ends {
				if a.Name == "hi" {
					ends[k] = int32(k + 1)
				}
			}
			e.Set(t, a.Name, tensor.BytesOf(ends))
		default:
			numbers := make([]float32, n)
			for k, u := range gputest.Noise(n, uint64(i)) {
				numbers[k] = (float32(u) - 127.5) / 600
			}
			e.Set(t, a.Name, tensor.BytesOf(numbers))
		}
	}
	return e
}

// results returns what a step computes.
func results(t *testing.T, e *gputest.Bound) (all [][]byte) {
	for _, a := range e.Program().Args {
		if a.Written {
			all = append(all, e.Get(t, a.Name, a.Bytes(e.Program().MaxDims())))
		}
	}
	return all
}

// The watchdog stops a training step in one command buffer. Divided by estimated work it passes, and computes the same
// bits: with several launches in a command buffer, and with launches that are divided too.
func TestWatchdog(t *testing.T) {
	run := func(watchdog int, ms string) (all [][]byte, err error) {
		with(t, "LFSIM_METAL_WATCHDOG="+strconv.Itoa(watchdog), metal.EnvCommand+"="+ms)
		dev, err := metal.Open(backend.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, dev.Close()) }()
		e := step(t, dev)
		metal.FakeCommands()
		if err = e.RunWait(context.Background()); err == nil {
			all = results(t, e)
		}
		require.NoError(t, e.Close())
		return all, err
	}
	want, err := run(0, "1000")
	require.NoError(t, err)
	whole := metal.FakeCommands()
	require.Equal(t, 1, whole.Commands)
	_, err = run(whole.Work/8, "1000")
	require.ErrorIs(t, err, backend.ErrTimeout)
	require.ErrorContains(t, err, metal.EnvCommand)
	for _, ms := range []string{"0.03", "0.006"} {
		got, err := run(whole.Work/8, ms)
		require.NoError(t, err)
		c := metal.FakeCommands()
		t.Logf("limit %s ms: %d command buffers, work %d of %d at most", ms, c.Commands, c.MostWork, whole.Work)
		require.Greater(t, c.Commands, 16)
		require.LessOrEqual(t, c.MostWork, whole.Work/8)
		require.Equal(t, want, got)
	}
	// The largest launch alone is too much for a stricter watchdog.
	_, err = run(whole.Work/30, "0.006")
	require.ErrorIs(t, err, backend.ErrTimeout)
	got, err := run(whole.Work/30, "0.001")
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Residency is requested when buffers were added, not for each command buffer. It ends with a buffer, and with the
// device.
func TestResidency(t *testing.T) {
	metal.FakeCommands()
	dev := opened(t, backend.Options{})
	e := chain(t, dev, 3)
	require.NoError(t, e.RunWait(t.Context()))
	require.Positive(t, metal.FakeCommands().Requests)
	for range 5 {
		require.NoError(t, e.RunWait(t.Context()))
	}
	c := metal.FakeCommands()
	require.Zero(t, c.Requests)
	b, err := dev.Alloc(1 << 20)
	require.NoError(t, err)
	require.NoError(t, e.RunWait(t.Context()))
	more := metal.FakeCommands()
	require.Equal(t, 1, more.Requests)
	require.Equal(t, c.ResidentBytes+1<<20, more.ResidentBytes)
	b.Free()
	b, err = dev.Alloc(256)
	require.NoError(t, err)
	defer b.Free()
	require.NoError(t, e.RunWait(t.Context()))
	require.Less(t, metal.FakeCommands().ResidentBytes, 1<<20)
	require.NoError(t, dev.Close())
	require.Zero(t, metal.FakeCommands().ResidentBytes)

	with(t, "LFSIM_METAL_NO_RESIDENCY=1")
	dev = opened(t, backend.Options{})
	require.NoError(t, gputest.Twice(dev))
	require.Zero(t, metal.FakeCommands().Requests)
}
