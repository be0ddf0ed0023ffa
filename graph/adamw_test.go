package graph_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// AdamW moves params by its formula, whether each step uses the same graph or a new one.
func TestAdamW(t *testing.T) {
	ctx, rate, b1, b2, eps, decay := context.Background(), 0.1, 0.8, 0.9, 1e-6, 0.05
	e := graph.NewEvaluator(testdevice.Open(t, backend.Options{}), graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	goal := []float32{1, -2, 0.5}
	for _, anew := range []bool{false, true} {
		o, err := graph.NewAdamW(graph.AdamWOptions{Rate: rate, Beta1: b1, Beta2: b2, Eps: eps, WeightDecay: decay})
		require.NoError(t, err)
		param := *floats(t, []float32{3, 3, 3}, 3)
		build := func() (loss, p graph.Tensor) {
			g := graph.New()
			p = g.Value(param)
			return p.Sub(g.Floats(goal, 3)).SumSquares(), p
		}
		loss, p := build()
		want, m, v := []float64{3, 3, 3}, make([]float64, 3), make([]float64, 3)
		for step := 1; step <= 20; step++ {
			if anew {
				loss, p = build()
			}
			wantLoss := 0.0
			for i := range want {
				d := want[i] - float64(goal[i])
				wantLoss += d * d
				m[i], v[i] = b1*m[i]+(1-b1)*2*d, b2*v[i]+(1-b2)*4*d*d
				n := float64(step)
				want[i] = want[i]*(1-rate*decay) - rate/(1-math.Pow(b1, n))*m[i]/(math.Sqrt(v[i])/math.Sqrt(1-math.Pow(b2, n))+eps)
			}
			got, err := o.Step(ctx, e, loss, p)
			require.NoError(t, err)
			require.InDelta(t, wantLoss, got, 1e-4)
			require.InDeltaSlice(t, want, toFloat64(values(t, &param)), 1e-5, "step %d", step)
		}
	}
	assert.Equal(t, 1, e.Stats().Misses, "one formula in all")
}

func TestAdamWRefusals(t *testing.T) {
	ctx, g := context.Background(), graph.New()
	e := graph.NewEvaluator(testdevice.Open(t, backend.Options{}), graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	for _, bad := range []graph.AdamWOptions{{Rate: -1}, {Rate: math.NaN()}, {Beta1: 1}, {Beta2: 1.5}, {Eps: -1}, {WeightDecay: math.Inf(1)}} {
		_, err := graph.NewAdamW(bad)
		require.ErrorIs(t, err, ir.ErrGraph, "%+v", bad)
	}
	o, err := graph.NewAdamW(graph.AdamWOptions{})
	require.NoError(t, err)
	assert.Equal(t, 1e-3, o.Rate)
	data := *floats(t, []float32{-1, 2}, 2)
	before := slices.Clone(data.Data)
	x := g.Value(data)
	_, err = o.Step(ctx, e, x.Apply(ir.Log).Sum(0), x)
	require.ErrorIs(t, err, graph.ErrNotFinite)
	assert.Equal(t, before, data.Data, "nothing has changed")
	_, err = o.Step(ctx, e, x.Sum(0))
	require.ErrorIs(t, err, ir.ErrGraph)
	y := g.Param("y", tensor.F32, ir.Static(2))
	_, err = o.Step(ctx, e, y.SumSquares(), y)
	require.ErrorContains(t, err, `param "y" f32[2] is no f32 value of the graph; make it by Graph.Value`)
	_, err = o.Step(ctx, e, x, x)
	require.ErrorContains(t, err, "the loss has 2 elements")
}
