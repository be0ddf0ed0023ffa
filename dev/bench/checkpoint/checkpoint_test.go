package checkpoint

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// A folder is one that models are opened from, and always the same.
func TestWrite(t *testing.T) {
	s, err := ByName("tiny")
	require.NoError(t, err)
	one, other := t.TempDir(), filepath.Join(t.TempDir(), "new", "folder")
	require.NoError(t, s.Write(one))
	require.NoError(t, s.Write(other))
	m, err := model.Open(one)
	require.NoError(t, err)
	defer m.Close()
	assert.Equal(t, s.Vocab, m.Config.VocabSize)
	assert.Equal(t, s.Positions, m.Config.MaxPositions)
	linear := 0
	for _, x := range m.Modules() {
		if x.Kind == nn.KindLinear {
			linear += x.In * x.Out
		}
	}
	assert.Equal(t, linear, s.LinearParams())
	w, err := m.Weight("model.layers.1.mlp.down_proj.weight")
	require.NoError(t, err)
	values, err := (&tensor.Tensor{DType: w.DType, Shape: w.Shape, Data: w.Source.Bytes}).Float32s()
	require.NoError(t, err)
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(values))
	assert.InDelta(t, 0, sum/n, 0.001)
	assert.InDelta(t, deviation, math.Sqrt(squares/n), 0.001)

	for _, name := range []string{"config.json", WeightsFile} {
		x, err := os.ReadFile(filepath.Join(one, name))
		require.NoError(t, err)
		y, err := os.ReadFile(filepath.Join(other, name))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(x, y), name)
	}
}

// Rows of a tensor that is longer than what is drawn are not the same ones again.
func TestLongTensors(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, writeNormal(&b, 1<<20, "x"))
	require.Equal(t, 1<<20, b.Len())
	quarter := b.Len() / 4
	assert.NotEqual(t, b.Bytes()[:quarter], b.Bytes()[quarter:2*quarter])
}

func TestShapes(t *testing.T) {
	small, err := ByName("small")
	require.NoError(t, err)
	assert.InDelta(t, 27.8e6, small.LinearParams(), 0.1e6)
	wide, err := ByName("wide")
	require.NoError(t, err)
	assert.InDelta(t, 153.6e6, wide.LinearParams(), 0.1e6)
	assert.Equal(t, 8*16*(2*(512+512)+2*(512+256)+3*(512+1408)), small.LoRAParams(16))
	_, err = ByName("smal")
	assert.EqualError(t, err, `checkpoint: found size "smal", expected one of tiny, small, wide, large, qwen-0.5b, qwen-7b, llama-8b, did you mean "small"?`)
	for _, bad := range []Shape{{Hidden: 7, Heads: 2, KVHeads: 1}, {Hidden: 8, Heads: 2, KVHeads: 0}, {Hidden: 9, Heads: 3, KVHeads: 1}, {Hidden: 24, Heads: 3, KVHeads: 2}} {
		assert.ErrorContains(t, bad.Write(t.TempDir()), "do not go together")
	}
	assert.ErrorContains(t, small.Write(filepath.Join(os.Args[0], "x")), "checkpoint: ")
}
