package dialects_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// FLUX.2 in the form of ComfyUI is read by diffusers with A and B alone: they hold the scale.
func TestFoldedAlpha(t *testing.T) {
	model := transformer(t, "flux2")
	var some []lora.Module
	for _, m := range model.Modules {
		if m.Kind == lora.Linear && (strings.HasSuffix(m.Name, "attn.to_q") || strings.HasSuffix(m.Name, "attn.to_out") || m.Name == "x_embedder") {
			some = append(some, m)
		}
	}
	require.NotEmpty(t, some)
	for _, scale := range []float64{2, 0.3} {
		a := adapter(t, some, func(i int) int { return 1 + i%3 }, func(int) float64 { return scale })
		for _, key := range keys(t, a, model, dialects.ComfyUI) {
			assert.Regexp(t, `^diffusion_model\..*\.lora_[AB]\.weight$`, key)
		}
		want := deltas(t, a, model)
		same(t, want, deltas(t, rewrite(t, a, model, dialects.ComfyUI), model), 1e-6*largest(want))
		assert.Contains(t, strings.Join(keys(t, a, model, dialects.Kohya), " "), ".alpha")
	}
}

// An alpha may be an integer, as torch.tensor makes it of one.
func TestAlphaOfIntegers(t *testing.T) {
	const q = "lora_unet_transformer_blocks_0_attn_to_q"
	for _, d := range []tensor.DType{tensor.I64, tensor.I32, tensor.BF16} {
		a, err := dialects.Read(write(t, nil, map[string]tensor.Tensor{
			q + ".lora_down.weight": random(1, tensor.F32, 4, 8), q + ".lora_up.weight": random(2, tensor.F32, 12, 4), q + ".alpha": must(one(8).Convert(d)),
		}), qwen(), dialects.Options{})
		require.NoError(t, err)
		assert.Equal(t, 8.0, a.Config.LoraAlpha)
	}
}
