package conformance

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// foldRuns is the number of runs that add to one sum.
const foldRuns = 3

// runFold requires a sum over runs to be the left fold of the results of the single runs, bit for bit: ((0+g0)+g1)+g2,
// as if each gradient had been computed elsewhere. This must hold for any length of the axis that a run itself sums
// over.
func runFold(t *testing.T, dev backend.Device) {
	lengths := []int{30, 825}
	if os.Getenv("LORAFUSE_LONG") != "" {
		lengths = append(lengths, 414, 2357, 3000)
	}
	for _, rows := range lengths {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			g := ir.New()
			n := g.Bound("rows", rows)
			x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(12)}})
			dy := g.Param("dy", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(5)}})
			grads := []ir.Value{
				g.MatMul(dy, x, true, false), g.Reduce(ir.ReduceSum, dy, 0),
				g.Add(g.MatMul(x, dy, true, false), g.Gemm([]ir.Product{{A: x, B: dy, TA: true, Alpha: 0.5}}, 0, 0)),
			}
			var alone, running exec.Spec
			for i, v := range grads {
				alone.Results = append(alone.Results, exec.Result{Name: fmt.Sprint("g", i), Value: v})
				running.Updates = append(running.Updates, exec.Update{Param: fmt.Sprint("g", i), Value: v, Accumulate: true})
			}
			want := make([][]float32, len(grads))
			var sums fold
			sums.compile(t, dev, g, running)
			for run := range foldRuns {
				var one fold
				one.compile(t, dev, g, alone)
				inputs := [][]float32{draw(run, rows*12), draw(run+foldRuns, rows*5)}
				for i, got := range [][][]float32{one.run(t, inputs), sums.run(t, inputs)} {
					for j, v := range got {
						if i == 0 {
							want[j] = plus(want[j], v)
						} else {
							require.Equal(t, want[j], v, "sum %d after %d runs", j, run+1)
						}
					}
				}
			}
		})
	}
}

// fold is a compiled program with its buffers.
type fold struct {
	dev     backend.Device
	exe     *exec.Executable
	buffers map[string]backend.Buffer
}

func (f *fold) compile(t *testing.T, dev backend.Device, g *ir.Graph, spec exec.Spec) {
	t.Helper()
	var err error
	f.dev, f.buffers = dev, map[string]backend.Buffer{}
	f.exe, err = exec.Compile(g, spec, dev)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.exe.Close()) })
	for _, a := range f.exe.Program().Args {
		f.buffers[a.Name] = alloc(t, dev, a.Type.Bytes(g.MaxDims()))
		require.NoError(t, f.exe.Bind(a.Name, f.buffers[a.Name]))
	}
}

// run returns the written arguments in order of their names.
func (f *fold) run(t *testing.T, inputs [][]float32) (written [][]float32) {
	t.Helper()
	for i, name := range []string{"x", "dy"} {
		upload(t, f.dev, f.buffers[name], tensor.BytesOf(inputs[i]))
	}
	require.NoError(t, f.exe.RunWait(context.Background()))
	for i := 0; f.buffers[fmt.Sprint("g", i)] != nil; i++ {
		b := f.buffers[fmt.Sprint("g", i)]
		out := make([]float32, b.Size()/4)
		download(t, f.dev, tensor.BytesOf(out), b)
		written = append(written, out)
	}
	return written
}

// draw returns n numbers whose sums are inexact.
func draw(seed, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32((i*7919+seed*104729)%2003-1001) / 977
	}
	return x
}

// plus adds x to sum, element by element.
func plus(sum, x []float32) []float32 {
	if sum == nil {
		sum = make([]float32, len(x))
	}
	for i, v := range x {
		sum[i] += v
	}
	return sum
}
