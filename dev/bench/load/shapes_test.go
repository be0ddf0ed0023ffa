package load

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

func total(t require.TestingT, entries []safetensors.Entry) (n int64) {
	for i := range entries {
		size, err := entries[i].Size()
		require.NoError(t, err)
		n += size
	}
	return n
}

// The files of the full size are those that docs/benchmarks.md speaks of.
func TestFullSize(t *testing.T) {
	m := llama(FullSize)
	assert.Equal(t, shape{layers: 24, hidden: 2048, kv: 256, inter: 1792, vocab: 32000, rank: 32}, m)
	assert.Len(t, m.base(), 218)
	assert.Equal(t, int64(1_112_739_840), total(t, m.base()))
	assert.Len(t, m.adapter(), 336)
	assert.Equal(t, int64(74_711_040), total(t, m.adapter()))
	assert.Equal(t, "model.layers.2.mlp.experts.77.gate_proj.weight", experts(50000)[768+77*3].Name)
	names := map[string]bool{}
	for _, e := range experts(50000) {
		names[e.Name] = true
	}
	assert.Len(t, names, 50000)
}

func TestSmallerSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(5_000_000, FullSize).Draw(t, "size")
		m := llama(size)
		require.Len(t, m.base(), 218)
		require.Len(t, m.adapter(), 336)
		require.InEpsilon(t, size, total(t, m.base()), 0.15)
	})
	assert.Less(t, total(t, llama(MinSize).base()), int64(2*MinSize))
}

// The noise is as long as it is asked for, of finite numbers, and does not
// repeat within a block.
func TestNoise(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, noise(&b, 3<<20+10))
	require.Equal(t, 3<<20+10, b.Len())
	values := make([]float32, 1<<19)
	require.NoError(t, tensor.ToFloat32(values, b.Bytes()[:1<<20], tensor.BF16))
	different := map[float32]bool{}
	for _, v := range values {
		require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0))
		require.Less(t, math.Abs(float64(v)), 2.0)
		different[v] = true
	}
	assert.Greater(t, len(different), 2000)
}
