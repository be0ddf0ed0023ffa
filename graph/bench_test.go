package graph_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/tensor"
)

// layerFormula builds a linear layer of 64 channels with an adapter of rank 8 on 8 rows, with its gradients if grads is
// set.
func layerFormula(g *graph.Graph, data []tensor.Tensor, grads bool) []graph.Tensor {
	x, w, a, b := g.Value(data[0]), g.Value(data[1]), g.Value(data[2]), g.Value(data[3])
	y := x.MatMulT(w).Add(x.MatMulT(a).MatMulT(b).Scale(2))
	if !grads {
		return []graph.Tensor{y}
	}
	return append(g.Gradients(y.SumSquares(), []graph.Tensor{a, b}, false), y)
}

func layerData(t testing.TB) []tensor.Tensor {
	var data []tensor.Tensor
	for i, s := range [][]int{{8, 64}, {64, 64}, {8, 64}, {64, 8}} {
		data = append(data, *floats(t, numbers(s[0]*s[1], uint64(i)), s...))
	}
	return data
}

// BenchmarkSecondEval measures the overhead of the second evaluation of a formula over the run of its compiled program:
// for the same graph, and for a new one, whose construction is not counted in µs-over-run. The three alternate; the
// medians are compared.
func BenchmarkSecondEval(b *testing.B) {
	for _, c := range []struct {
		name  string
		grads bool
	}{{"forward", false}, {"gradients", true}} {
		b.Run(c.name, func(b *testing.B) {
			ctx, dev, data := context.Background(), testdevice.Open(b, backend.Options{Threads: 1}), layerData(b)
			g := graph.New()
			ts := layerFormula(g, data, c.grads)
			p := g.Program()
			for i, t := range ts {
				p.Result(string(rune('a'+i)), t)
			}
			compiled, err := p.Compile(dev)
			require.NoError(b, err)
			for i, t := range ts {
				buf, err := dev.Alloc(t.Type().Bytes(nil))
				require.NoError(b, err)
				defer buf.Free()
				require.NoError(b, compiled.Bind(string(rune('a'+i)), buf))
			}
			e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
			_, err = e.Eval(ctx, ts...)
			require.NoError(b, err)
			var run, same, anew, build []float64
			took := func(f func()) float64 {
				start := time.Now()
				f()
				return time.Since(start).Seconds() * 1e6
			}
			for b.Loop() {
				var us []graph.Tensor
				run = append(run, took(func() { err = compiled.RunWait(ctx) }))
				require.NoError(b, err)
				same = append(same, took(func() { _, err = e.Eval(ctx, ts...) }))
				require.NoError(b, err)
				build = append(build, took(func() { us = layerFormula(graph.New(), data, c.grads) }))
				anew = append(anew, took(func() { _, err = e.Eval(ctx, us...) }))
				require.NoError(b, err)
			}
			require.Equal(b, 1, e.Stats().Misses)
			require.NoError(b, e.Close())
			require.NoError(b, compiled.Close())
			b.ReportMetric(median(run), "µs-run")
			b.ReportMetric(median(same)-median(run), "µs-over-run")
			b.ReportMetric(median(anew)-median(run), "µs-over-run-new-graph")
			b.ReportMetric(median(build), "µs-build")
		})
	}
}
