package lora_test

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// drawn are n numbers that look random.
func drawn(n int, phase float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)*1.7 + phase))
	}
	return x
}

func sampleLayer(t testing.TB) *lora.Layer {
	l, err := lora.NewLayer(12, 7, 3, 6, 1)
	require.NoError(t, err)
	copy(l.B, drawn(len(l.B), 1))
	return l
}

// The layer on a frozen weight is one product, equals the weight that it is
// merged into, and the weight's own product plus the layer at once.
func TestLayerInAGraph(t *testing.T) {
	ctx, l := context.Background(), sampleLayer(t)
	e := graph.NewEvaluator(testdevice.Open(t, backend.Options{}), graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	l.RSLoRA, l.Dropout = true, 0.4
	weight, bias, xs := drawn(7*12, 2), drawn(7, 3), drawn(2*5*12, 4)
	merged := append([]float32(nil), weight...)
	require.NoError(t, l.Merge(merged))
	eager := make([]float32, 2*5*7)
	require.NoError(t, l.ForwardDropout(eager, xs, 10, 11, 2))

	g := graph.New()
	x, w, b, none := g.Floats(xs, 2, 5, 12), g.Floats(weight, 7, 12), g.Floats(bias, 7), graph.Tensor{}
	y := l.Linear(x, w, b, none)
	plan, err := g.Program().Result("y", y).Plan(nil)
	require.NoError(t, err)
	assert.Len(t, plan.Launches, 2, "A, then W and B together:\n%v", plan)
	key := g.Key(11, 2)
	out, err := e.Eval(ctx, y, x.Linear(g.Floats(merged, 7, 12), b), l.Linear(x, w, b, key), x.Linear(w, b), l.Apply(x, key))
	require.NoError(t, err)
	numbers := make([][]float32, len(out))
	for i, o := range out {
		assert.Equal(t, []int{2, 5, 7}, o.Shape)
		numbers[i], err = o.Float32s()
		require.NoError(t, err)
	}
	assert.InDeltaSlice(t, numbers[1], numbers[0], 2e-5)
	for i, v := range eager {
		assert.InDelta(t, numbers[3][i]+v, numbers[2][i], 2e-5)
		assert.InDelta(t, v, numbers[4][i], 1e-5)
	}
	dropped := 0
	for i := range numbers[0] {
		if math.Abs(float64(numbers[0][i]-numbers[2][i])) > 1e-3 {
			dropped++
		}
	}
	assert.Greater(t, dropped, 35, "dropout changes what it is used on")
}

// A layer from a file can be trained: its params get memory of their own.
func TestLoadedLayerIsTrained(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "l.safetensors")
	require.NoError(t, sampleLayer(t).Save(path))
	l, err := lora.LoadLayer(path, 0, 0, 0, 6)
	require.NoError(t, err)
	e := graph.NewEvaluator(testdevice.Open(t, backend.Options{}), graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	o, err := graph.NewAdamW(graph.AdamWOptions{Rate: 0.05})
	require.NoError(t, err)
	g := graph.New()
	loss := l.Apply(g.Floats(drawn(4*12, 5), 4, 12), graph.Tensor{}).SumSquares()
	first, err := o.Step(ctx, e, loss, l.Params(g)...)
	require.NoError(t, err)
	var last float64
	for range 30 {
		last, err = o.Step(ctx, e, loss, l.Params(g)...)
		require.NoError(t, err)
	}
	assert.Less(t, last, first/10)
	again, err := lora.LoadLayer(path, 0, 0, 0, 6)
	require.NoError(t, err)
	assert.Equal(t, sampleLayer(t).A, again.A, "the file is as it was")
	assert.NotEqual(t, again.A, l.A)
}

func TestLayerInAGraphMistakes(t *testing.T) {
	l, none := sampleLayer(t), graph.Tensor{}
	for want, build := range map[string]func(g *graph.Graph) graph.Tensor{
		"lora layer of 12→7: x [2,13], expected it to end in 12":          func(g *graph.Graph) graph.Tensor { return l.Apply(g.Zeros(2, 13), none) },
		"lora layer of 12→7: x [], expected it to end in 12":              func(g *graph.Graph) graph.Tensor { return l.Linear(g.Zeros(), g.Zeros(7, 12), none, none) },
		"lora: inner sizes 12 and 7 differ: x [2,12] · w [12,7]ᵀ; transp": func(g *graph.Graph) graph.Tensor { return l.Linear(g.Zeros(2, 12), g.Zeros(12, 7), none, none) },
		"lora: layer of in 0, out 0, rank 0: wrong shape":                 func(g *graph.Graph) graph.Tensor { return (&lora.Layer{}).Apply(g.Zeros(2, 12), none) },
		"expected a key u32[3]": func(g *graph.Graph) graph.Tensor {
			m := *l
			m.Dropout = 0.5
			return m.Apply(g.Zeros(2, 12), g.Param("key", tensor.U32, ir.Static(2)))
		},
	} {
		g := graph.New()
		y := build(g)
		assert.False(t, y.Scale(2).Valid())
		require.ErrorIs(t, g.Err(), ir.ErrGraph)
		assert.ErrorContains(t, g.Err(), want)
		assert.ErrorContains(t, g.Err(), "layer_graph_test.go:")
	}
}
