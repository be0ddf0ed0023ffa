//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func opened(t *testing.T, o backend.Options) *cuda.Device {
	t.Helper()
	simtest.Need(t)
	dev, err := cuda.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func TestLargeCopies(t *testing.T) { gputest.LargeCopies(t, opened(t, backend.Options{})) }

func TestClosed(t *testing.T) {
	if !onSimulator(t) { // which looks for what was left behind
		return
	}
	dev, err := cuda.Open(backend.Options{})
	require.NoError(t, err)
	gputest.Closed(t, dev, dev.Programs)
}

// Runs that come again become graphs: one for each size, and no more than some.
func TestGraphs(t *testing.T) {
	g := graph.New()
	n := g.Bound("n", 40)
	x := g.Param("x", tensor.F32, n)
	for _, mode := range []string{"1", "0"} {
		t.Setenv(cuda.EnvGraph, mode)
		dev := opened(t, backend.Options{})
		p, err := exec.Plan(g.IR(), exec.Spec{Results: []exec.Result{{Name: "y", Value: x.Apply(ir.Neg).Value()}}}, nil)
		require.NoError(t, err)
		e, err := dev.Compile(p)
		require.NoError(t, err)
		in, err := dev.Alloc(160)
		require.NoError(t, err)
		ones := make([]float32, 40)
		for i := range ones {
			ones[i] = 1
		}
		gputest.Wait(t)(dev.Upload(in, 0, tensor.BytesOf(ones)))
		out, err := dev.Alloc(160)
		require.NoError(t, err)
		run := func(size int) []byte {
			gputest.Wait(t)(dev.Upload(out, 0, make([]byte, 160)))
			gputest.Wait(t)(e.Run(context.Background(), backend.Args{Buffers: []backend.Buffer{in, out}, Dims: []int{0, size}}))
			got := make([]byte, 160)
			gputest.Wait(t)(dev.Download(got, out, 0))
			return got
		}
		for i, want := range []int{0, 1, 1} {
			first := run(3)
			require.Equal(t, 3, bytes.Count(first, []byte{0x80, 0xbf}))
			if mode == "1" {
				require.Equal(t, want, cuda.Graphs(e), "after run %d", i+1)
			}
		}
		for range 3 {
			for size := 1; size <= 36; size++ {
				require.Equal(t, size, bytes.Count(run(size), []byte{0x80, 0xbf}), "of 36 sizes in turns")
			}
		}
		other, err := dev.Alloc(160)
		require.NoError(t, err)
		out.Free()
		out = other
		require.Equal(t, 3, bytes.Count(run(3), []byte{0x80, 0xbf}), "elsewhere")
		if mode == "1" {
			require.Equal(t, 32, cuda.Graphs(e))
		} else {
			require.Zero(t, cuda.Graphs(e))
		}
		require.NoError(t, e.Close())
	}
}

func TestOrder(t *testing.T) { gputest.Order(t, opened(t, backend.Options{})) }

func TestProfile(t *testing.T) {
	profile := &backend.Profile{}
	gputest.Profile(t, opened(t, backend.Options{Profile: profile}), profile)
}

func TestRestless(t *testing.T) { gputest.Restless(t, opened(t, backend.Options{})) }
