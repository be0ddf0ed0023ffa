package graph_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestValues(t *testing.T) {
	ctx, dev := context.Background(), device(t)
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	defer func() { require.NoError(t, e.Close()) }()
	g := graph.New()
	data := *floats(t, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	x := g.Value(data)
	assert.Equal(t, x, g.Value(data), "the same memory is one value")
	held, ok := x.Data()
	assert.True(t, ok)
	assert.Equal(t, data, held)
	_, ok = g.Zeros(2).Data()
	assert.False(t, ok)
	y := x.Add(g.Ones(3)).Mul(g.Floats([]float32{10, 20}, 2, 1)).Add(g.Zeros(1))
	read := func() []float32 {
		out, err := y.Eval(ctx, e)
		require.NoError(t, err)
		got, err := out.Float32s()
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, []float32{20, 30, 40, 100, 120, 140}, read())
	copy(data.Data, floats(t, []float32{-1}, 1).Data) // read at each evaluation
	assert.Equal(t, []float32{0, 30, 40, 100, 120, 140}, read())
	require.NoError(t, g.Set(x, *floats(t, make([]float32, 6), 2, 3)))
	assert.Equal(t, []float32{10, 10, 10, 20, 20, 20}, read())
	require.ErrorContains(t, g.Set(x, *floats(t, make([]float32, 6), 3, 2)), "set of a value F32[2 3], found F32[3 2]")
	require.ErrorIs(t, g.Set(y, data), ir.ErrGraph)
	require.ErrorIs(t, g.Set(x, tensor.Tensor{}), tensor.ErrDType)

	// A compiled program has them too, without a name.
	exe, err := g.Program().Result("y", y).Compile(dev)
	require.NoError(t, err)
	out, err := dev.Alloc(24)
	require.NoError(t, err)
	require.NoError(t, exe.Bind("y", out))
	require.NoError(t, exe.RunWait(ctx))
	require.NoError(t, exe.Close())
	got := floats(t, make([]float32, 6), 6)
	f, err := dev.Download(got.Data, out, 0)
	require.NoError(t, err)
	require.NoError(t, f.Wait(ctx))
	values, err := got.Float32s()
	require.NoError(t, err)
	assert.Equal(t, []float32{10, 10, 10, 20, 20, 20}, values)
	out.Free()
}

func TestValueMistakes(t *testing.T) {
	for want, build := range map[string]func(g *graph.Graph){
		"value: tensor: F32[3] takes 12 bytes, found 0":     func(g *graph.Graph) { g.Value(tensor.Tensor{DType: tensor.F32, Shape: []int{3}}) },
		"floats: tensor: shape [3] has 3 elements, 2 value": func(g *graph.Graph) { g.Floats([]float32{1, 2}, 3) },
		`param "value.1": a value of the graph has this`: func(g *graph.Graph) {
			g.Floats([]float32{1}, 1)
			g.Param("value.1", tensor.F32, ir.Static(1))
		},
		"index: element 2 of axis 1 of [3,2]": func(g *graph.Graph) { g.Zeros(3, 2).Index(-1, 2) },
		"range [3,2) of axis 0 of f32[3,2]":   func(g *graph.Graph) { g.Zeros(3, 2).Slice(0, graph.End, 2) },
		"range [-1,2) of axis 0 of f32[3,2]":  func(g *graph.Graph) { g.Zeros(3, 2).Slice(0, -4, 2) },
		"axis 2 of f32[3,2]":                  func(g *graph.Graph) { g.Zeros(3, 2).Slice(2, 0, 1) },
	} {
		g := graph.New()
		build(g)
		require.ErrorIs(t, g.Err(), ir.ErrGraph, want)
		assert.ErrorContains(t, g.Err(), want)
		assert.ErrorContains(t, g.Err(), "value_test.go:")
	}
	g := graph.New()
	g.Param("value.1", tensor.F32, ir.Static(1))
	g.Floats([]float32{1}, 1)
	require.NoError(t, g.Err())
	assert.Equal(t, []string{"value.1", "value.2"}, g.IR().ParamNames(), "made names make way")
}

func TestSlicesFromTheEnd(t *testing.T) {
	g := graph.New()
	x := g.Floats([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	got := eval(t, []graph.Tensor{x.Slice(-1, -2, graph.End), x.Slice(1, 0, -1), x.Slice(0, -1, graph.End), x.Index(-1, -1), x.Index(0, 1)}, nil, nil)
	assert.Equal(t, [][]float32{{1, 2, 4, 5}, {0, 1, 3, 4}, {3, 4, 5}, {2, 5}, {3, 4, 5}}, got)
}
