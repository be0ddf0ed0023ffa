package model_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestFloat8Goldens: weights in 8-bit floats with scales of blocks, rows or whole weights are
// those that they stand for, dequantised in float64, and so are the logits.
func TestFloat8Goldens(t *testing.T) {
	for name, want := range map[string]struct {
		weights     int
		activations string
	}{
		"fp8-block":     {14, "activation_scheme dynamic"},
		"fp8-block-odd": {7, "activation_scheme dynamic"},
		"fp8-experts":   {26, "activation_scheme dynamic"},
		"fp8-static":    {13, "activation_scheme static"},
		"fp8-channel":   {13, "input_activations"},
		"fp8-tensor":    {7, "input_activations"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../../testdata/quant", name)
			m, err := model.Open(dir)
			require.NoError(t, err)
			defer m.Close()
			q := m.Quantization()
			require.True(t, q.Stored)
			require.Len(t, q.Weights, want.weights)
			require.Empty(t, q.Widened)
			lines := strings.Join(q.Lines(), "\n")
			require.Contains(t, lines, "linear layers as fp8")
			require.Contains(t, lines, "activations are not rounded ("+want.activations+" is not used)")
			require.Empty(t, m.UnreadLine())

			f, err := safetensors.Open(filepath.Join(dir, "golden.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			shown := 0
			for _, key := range f.Names() {
				name, ok := strings.CutPrefix(key, "weights.")
				if !ok {
					continue
				}
				shown++
				w, err := m.Weight(name)
				require.NoError(t, err)
				values, err := w.Float32s()
				require.NoError(t, err)
				require.Equal(t, floats(t, f, key), values, name)
			}
			require.NotZero(t, shown)
			requireNear(t, floats(t, f, "logits"), logitsOf(t, m, intRows(t, f, "input_ids")), 1e-5)
		})
	}
}

// TestFloat8Errors: what contradicts quantization_config, or is not read, is named.
func TestFloat8Errors(t *testing.T) {
	const q = "model.layers.0.self_attn.q_proj"
	keep := func(_ string, data []byte) []byte { return data }
	drop := func(suffix string) func(string, []byte) []byte {
		return func(name string, data []byte) []byte {
			if name == q+suffix {
				return nil
			}
			return data
		}
	}
	for _, c := range []struct {
		from, config string
		change       func(string, []byte) []byte
		kind         error
		says         string
	}{
		{"fp8-block", "", drop(".weight_scale_inv"), model.ErrQuantized, "found no scale, expected the tensor " + q + ".weight_scale_inv or " + q + ".weight_scale"},
		{"fp8-block", `{"quant_method": "fp8"}`, keep, model.ErrQuantized, "expected one float, or one for each of 48 rows, or [1 1] for blocks of [128 128]"},
		{"fp8-block", `{"quant_method": "fp8", "weight_block_size": null}`, keep, model.ErrQuantized, "is F32 [3 5], expected one float, or one for each of 48 rows"},
		{"fp8-block", `{"quant_method": "fp8", "weight_block_size": [16]}`, keep, model.ErrConfig, "quantization_config: bad config.json: weight_block_size: found [16]"},
		{"fp8-block", `{"quant_method": "fp8", "weight_block_size": [16, 0]}`, keep, model.ErrConfig, "expected two numbers of at least 1"},
		{"fp8-block", `{"quant_method": "fp8", "scale_fmt": "ue8m0"}`, keep, model.ErrUnsupported, `scale_fmt "ue8m0"; supported: float`},
		{"fp8-channel", `{"quant_method": "compressed-tensors", "format": "pack-quantized"}`, keep, model.ErrUnsupported, `format "pack-quantized"; supported: float-quantized`},
		{"fp8-channel", `{"quant_method": "compressed-tensors", "format": "float-quantized"}`, keep, model.ErrConfig, "config_groups: found nothing"},
		{"fp8-channel", `{"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}}}`, keep, model.ErrUnsupported, "config_groups.group_0.weights: unsupported model: type \"float of 4 bits\""},
		{"fp8-channel", `{"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "group"}}}}`, keep, model.ErrUnsupported, `strategy "group"; supported: tensor, channel, block`},
		{"fp8-channel", `{"quant_method": "compressed-tensors", "format": "float-quantized", "transform_config": {"config_groups": {"R1": {}}}}`, keep, model.ErrUnsupported, "transform_config: found"},
	} {
		t.Run(c.from+" "+c.says, func(t *testing.T) {
			changed := map[string]any{}
			if c.config != "" {
				changed["quantization_config"] = json.RawMessage(c.config)
			}
			_, err := model.Open(changedCheckpoint(t, filepath.Join("../../testdata/quant", c.from), c.change, changed))
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	_, err := model.Open(changedCheckpoint(t, "../../testdata/lm/llama/model", keep, map[string]any{"quantization_config": map[string]any{"quant_method": "fp8"}}))
	require.ErrorIs(t, err, model.ErrConfig)
	require.ErrorContains(t, err, `quant_method "fp8": found no weight in 8-bit floats in the files`)
	_, err = model.Open(changedCheckpoint(t, "../../testdata/quant/fp8-block", func(name string, data []byte) []byte {
		if name == q+".weight_scale_inv" {
			return append(tensor.BytesOf([]float32{1}), data[4:]...)
		}
		return data
	}, nil))
	require.NoError(t, err)
}
