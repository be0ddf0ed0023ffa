package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// TestQuantizationLines: what people are told of quantised weights.
func TestQuantizationLines(t *testing.T) {
	m, err := model.Open("../../testdata/lm/llama/model")
	require.NoError(t, err)
	defer m.Close()
	require.Empty(t, m.Quantization().Lines())
	require.NoError(t, m.Quantize(quant.Bit4, nil))
	require.Equal(t, []string{"quantize nf4: 14 linear layers in 40.5 KiB, 144.0 KiB in 16 bits; embeddings, norms and the head as in the file"}, m.Quantization().Lines())
	require.Empty(t, m.Quantization().Storage())

	stored, err := model.Open("../../testdata/quant/int8-odd")
	require.NoError(t, err)
	defer stored.Close()
	require.Equal(t, []string{
		"quantize by bitsandbytes: 7 linear layers as int8",
		"note     7 of the quantised weights are used as float32, since their rows are not whole blocks: model.layers.0.mlp.down_proj.weight and 6 more",
	}, stored.Quantization().Lines())
}
