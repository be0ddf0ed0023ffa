package gputest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Flights checks that the maximum number of runs can be pending, each after an upload into the previous run's input,
// while the host sees no run end. One more run waits for the first of them, at most until its context ends. Here and
// below, unseen calls a function while the host does not see runs end, and then waits for them.
func Flights(t *testing.T, dev backend.Device, unseen func(func())) {
	const n = 600_000 // more than a piece of a copy has
	g := graph.New()
	e, err := g.Program().Result("y", g.Param("x", tensor.F32, ir.Static(n)).Slice(0, n-8, n).Scale(2)).Compile(dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	in, err := dev.Alloc(4 * n)
	require.NoError(t, err)
	defer in.Free()
	require.NoError(t, e.Bind("x", in))
	var outs []backend.Buffer
	for range backend.MaxInFlight + 1 {
		y, err := dev.Alloc(4 * 8)
		require.NoError(t, err)
		defer y.Free()
		outs = append(outs, y)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for turn := range 3 { // as launches, and as graphs if supported
		var fences []backend.Fence
		run := func(ctx context.Context) error {
			i := len(fences)
			require.NoError(t, e.Bind("y", outs[i]))
			_, err := dev.Upload(in, 0, tensor.BytesOf(slices.Repeat([]float32{float32(10*turn + i)}, n)))
			require.NoError(t, err)
			f, err := e.Run(ctx)
			if err == nil {
				fences = append(fences, f)
			}
			return err
		}
		unseen(func() {
			for range backend.MaxInFlight {
				require.NoError(t, run(context.Background()))
			}
			for _, f := range fences {
				require.ErrorIs(t, f.Wait(ended), context.Canceled, "it is under way")
			}
			short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			require.ErrorIs(t, run(short), context.DeadlineExceeded, "no more may be under way")
		})
		require.NoError(t, run(context.Background()))
		for i := len(fences) - 1; i > 0; i-- {
			Wait(t)(fences[i], nil)
			require.NoError(t, fences[i].Wait(ended), "what is reached is reached")
		}
		for i, y := range outs {
			got := make([]float32, 8)
			Wait(t)(dev.Download(tensor.BytesOf(got), y, 0))
			require.Equal(t, slices.Repeat([]float32{float32(2 * (10*turn + i))}, 8), got, "run %d of turn %d", i, turn)
		}
	}
}

// Yields checks that a run waits for its yield before it is submitted, and signals its end even if it fails.
func Yields(t *testing.T, dev backend.Device, unseen func(func())) {
	g := graph.New()
	e, err := g.Program().Result("y", g.Param("x", tensor.F32, ir.Static(8)).Scale(2)).Compile(dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	for _, name := range []string{"x", "y"} {
		b, err := dev.Alloc(32)
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, e.Bind(name, b))
	}
	var begun, over atomic.Int64
	yields := backend.WithYield(t.Context(), func() func() {
		begun.Add(1)
		return func() { over.Add(1) }
	})
	unseen(func() {
		for range backend.MaxInFlight {
			_, err := e.Run(yields)
			require.NoError(t, err)
		}
		require.EqualValues(t, backend.MaxInFlight, begun.Load())
		require.Zero(t, over.Load(), "they are under way")
	})
	require.NoError(t, e.RunWait(yields))
	require.Equal(t, begun.Load(), over.Load())
	require.NoError(t, e.RunWait(t.Context()))
	require.EqualValues(t, backend.MaxInFlight+1, begun.Load())

	gone, err := dev.Alloc(32)
	require.NoError(t, err)
	require.NoError(t, e.Bind("x", gone))
	gone.Free()
	require.ErrorIs(t, e.RunWait(yields), backend.ErrClosed)
	require.EqualValues(t, backend.MaxInFlight+2, begun.Load())
	require.Equal(t, begun.Load(), over.Load())
}

// Traps checks that an error of a kernel is attributed to its run, although the host reads it only after later runs
// have reported too; with single launches, and with graphs if supported.
func Traps(t *testing.T, dev backend.Device, unseen func(func())) {
	g := graph.New()
	table, ids := g.Param("table", tensor.F32, ir.Static(5), ir.Static(3)), g.Param("ids", tensor.I32, ir.Static(1))
	e, err := g.Program().Result("y", table.Gather(ids)).Compile(dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	buffers := map[string]backend.Buffer{"table": nil, "ids": nil, "y": nil}
	for name := range buffers {
		b, err := dev.Alloc(64)
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, e.Bind(name, b))
		buffers[name] = b
	}
	for turn := range 4 {
		var fences []backend.Fence
		id := func(run int) int { return 3 + turn%2 + run }
		unseen(func() {
			for i := range backend.MaxInFlight {
				_, err := dev.Upload(buffers["ids"], 0, tensor.BytesOf([]int32{int32(id(i))}))
				require.NoError(t, err)
				f, err := e.Run(context.Background())
				require.NoError(t, err)
				fences = append(fences, f)
			}
		})
		for i, f := range fences {
			err := f.Wait(context.Background())
			if id(i) < 5 {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, fmt.Sprintf("%s: GatherRows: id %d at 0, the table has 5 rows", dev.Info().Backend, id(i)))
			}
		}
	}
}

// FreedUnderWay checks that inputs and outputs of a run may be freed once it is submitted.
func FreedUnderWay(t *testing.T, dev backend.Device) {
	e := Scaled(t, dev)
	var last backend.Fence
	for range 4 * backend.MaxInFlight {
		x, err := dev.Alloc(4 * 8 * 64)
		require.NoError(t, err)
		y, err := dev.Alloc(4 * 8 * 64)
		require.NoError(t, err)
		require.NoError(t, e.Bind("x", x))
		require.NoError(t, e.Bind("y", y))
		_, err = dev.Upload(x, 0, Noise(4*8*64, 3))
		require.NoError(t, err)
		last, err = e.Run(context.Background())
		require.NoError(t, err)
		x.Free()
		y.Free()
	}
	Wait(t)(last, nil)
}

// ClosedUnderWay checks that closing a device completes the runs that were submitted to it. It closes dev.
func ClosedUnderWay(t *testing.T, dev backend.Device) {
	e := Scaled(t, dev)
	var fences []backend.Fence
	for range backend.MaxInFlight {
		f, err := e.Run(context.Background())
		require.NoError(t, err)
		fences = append(fences, f)
	}
	require.NoError(t, dev.Close())
	for _, f := range fences {
		Wait(t)(f, nil)
	}
}
