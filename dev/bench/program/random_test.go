package program

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/tensor"
)

// Weights of an empty file are drawn: like those of a model, each its own, and norms
// are ones.
func TestRandom(t *testing.T) {
	dir := t.TempDir()
	shape, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	require.NoError(t, shape.WriteEmpty(dir))
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	defer dev.Close()
	r, err := Draw(dev)
	require.NoError(t, err)
	s := engine.NewStore(r)
	defer s.Free()
	require.NoError(t, s.Import(t.Context(), m, m.Used()))
	read := func(name string) []float32 {
		w, err := m.Weight(name)
		require.NoError(t, err)
		raw := make([]byte, w.Size())
		require.NoError(t, s.Get(t.Context(), name, raw))
		x, err := (&tensor.Tensor{DType: w.DType, Shape: w.Shape, Data: raw}).Float32s()
		require.NoError(t, err)
		return x
	}
	one, other := read("model.layers.0.mlp.up_proj.weight"), read("model.layers.1.mlp.up_proj.weight")
	for _, x := range [][]float32{one, other} {
		sum, squares, most := 0.0, 0.0, 0.0
		for _, v := range x {
			sum, squares, most = sum+float64(v), squares+float64(v)*float64(v), max(most, math.Abs(float64(v)))
		}
		n := float64(len(x))
		assert.InDelta(t, 0, sum/n, 0.001)
		assert.InDelta(t, deviation, math.Sqrt(squares/n), 0.001)
		assert.InDelta(t, deviation*math.Sqrt(3), most, 0.001)
	}
	assert.NotEqual(t, one, other)
	for _, v := range read("model.norm.weight") {
		require.Equal(t, float32(1), v)
	}
	assert.Equal(t, r.Loaded().Bytes, int64(s.Bytes()))
}
