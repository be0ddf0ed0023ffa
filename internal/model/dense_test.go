package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
)

// TestDenseConfigErrors: keys of dense decoders that would change the formula are computed or
// rejected by name.
func TestDenseConfigErrors(t *testing.T) {
	longrope := func(short, long int) map[string]any {
		return map[string]any{"rope_type": "longrope", "short_factor": make1s(short), "long_factor": make1s(long)}
	}
	for _, c := range []struct {
		class   string
		changes map[string]any
		kind    error
		says    string
	}{
		{"Phi3ForCausalLM", map[string]any{"resid_pdrop": 0.1}, model.ErrUnsupported, `resid_pdrop "0.1"; supported: 0`},
		{"Phi3ForCausalLM", map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2}}, model.ErrUnsupported, `rope_type "linear"; supported: default, longrope`},
		{"Phi3ForCausalLM", map[string]any{"rope_parameters": longrope(8, 7)}, model.ErrConfig, "long_factor: found 7 numbers, expected 8, one for each pair"},
		{"Phi3ForCausalLM", map[string]any{"rope_scaling": map[string]any{"type": "su", "short_factor": []float64{1, 0, 1, 1, 1, 1, 1, 1}, "long_factor": make1s(8)}}, model.ErrConfig, "short_factor: found 0, expected positive numbers"},
		{"Phi3ForCausalLM", map[string]any{"partial_rotary_factor": 0}, model.ErrConfig, "partial_rotary_factor: found 0, expected more than 0, and at most 1"},
		{"Phi3ForCausalLM", map[string]any{"rope_parameters": map[string]any{"partial_rotary_factor": 0.01}}, model.ErrConfig, "partial_rotary_factor: found 0.01, expected at least one of the 16 elements of a head"},
		{"GraniteForCausalLM", map[string]any{"logits_scaling": 0}, model.ErrConfig, "logits_scaling: found 0"},
		{"GraniteForCausalLM", map[string]any{"partial_rotary_factor": 0.5}, model.ErrUnsupported, "partial_rotary_factor"},
		{"GraniteMoeHybridForCausalLM", map[string]any{"layer_types": []string{"attention", "attention"}}, model.ErrUnsupported, `num_local_experts "8"; supported: 0`},
		{"GraniteMoeHybridForCausalLM", map[string]any{"num_local_experts": 0}, model.ErrUnsupported, `layer_types "mamba (the default)"`},
		{"GraniteMoeHybridForCausalLM", map[string]any{"num_local_experts": 0, "layers_block_type": []string{"attention", "mamba"}}, model.ErrUnsupported, `layer_types "mamba"; supported: attention`},
		{"GraniteMoeHybridForCausalLM", map[string]any{"num_local_experts": 0, "layer_types": []string{"attention"}}, model.ErrConfig, "layer_types: found 1 entries, expected 2"},
		{"Olmo3ForCausalLM", map[string]any{"sliding_window": nothing{}}, model.ErrConfig, "sliding_window: found null, expected 1 or more"},
		{"Olmo3ForCausalLM", map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn"}}, model.ErrConfig, "one table, expected one for each layer type"},
		{"SmolLM3ForCausalLM", map[string]any{"no_rope_layers": []int{1}}, model.ErrConfig, "no_rope_layers: found 1 entries, expected 2"},
		{"SmolLM3ForCausalLM", map[string]any{"no_rope_layer_interval": 0}, model.ErrConfig, "no_rope_layer_interval: found 0"},
		{"SmolLM3ForCausalLM", map[string]any{"layer_types": []string{"sliding_attention", "full_attention"}}, model.ErrConfig, "sliding_window: found"},
		{"Exaone4ForCausalLM", map[string]any{"sliding_window_pattern": "LLLG"}, model.ErrConfig, `sliding_window_pattern: found "LLLG", expected an integer`},
		{"Exaone4ForCausalLM", map[string]any{"sliding_window": nothing{}, "layer_types": []string{"sliding_attention", "full_attention"}}, model.ErrConfig, "sliding_window: found null"},
		{"Glm4ForCausalLM", map[string]any{"partial_rotary_factor": 1.5}, model.ErrConfig, "partial_rotary_factor: found 1.5"},
		{"GlmForCausalLM", map[string]any{"head_dim": 18, "rope_parameters": map[string]any{"rope_type": "yarn", "factor": 2}}, model.ErrConfig, "9 rotated elements of a head"},
		{"CohereForCausalLM", map[string]any{"logit_scale": 0}, model.ErrConfig, "logit_scale: found 0"},
		{"GPT2LMHeadModel", map[string]any{"add_cross_attention": true}, model.ErrUnsupported, `add_cross_attention "true"; supported: false`},
		{"GPT2LMHeadModel", map[string]any{"n_head": 5}, model.ErrConfig, "n_embd: found 768, expected a multiple of n_head"},
		{"GPT2LMHeadModel", map[string]any{"activation_function": "mish"}, model.ErrUnsupported, `"mish"; supported: gelu`},
		{"GPTNeoXForCausalLM", map[string]any{"rotary_pct": 0}, model.ErrConfig, "partial_rotary_factor: found 0, expected more than 0"},
		{"GPTNeoXForCausalLM", map[string]any{"num_attention_heads": 5}, model.ErrConfig, "expected a multiple of num_attention_heads"},
		{"ApertusForCausalLM", map[string]any{"rope_parameters": map[string]any{"rope_type": "su"}}, model.ErrUnsupported, `rope_type "su"`},
		{"GptOssForCausalLM", map[string]any{"swiglu_limit": 0}, model.ErrConfig, "swiglu_limit: found 0, expected more than 0"},
		{"GptOssForCausalLM", map[string]any{"num_local_experts": 2}, model.ErrConfig, "num_experts_per_tok: found 4, expected at most num_local_experts 2"},
		{"Gemma4ForCausalLM", map[string]any{"enable_moe_block": true}, model.ErrUnsupported, `enable_moe_block "true"; supported: false`},
		{"Gemma4ForCausalLM", map[string]any{"use_bidirectional_attention": "all"}, model.ErrUnsupported, `use_bidirectional_attention "all"`},
		{"Gemma4ForCausalLM", map[string]any{"num_kv_shared_layers": 1, "layer_types": []string{"sliding_attention", "full_attention"}}, model.ErrConfig, "num_kv_shared_layers: found 1, expected for each of them a layer"},
		{"Gemma4ForCausalLM", map[string]any{"per_layer_config": map[string]any{"1": map[string]any{"intermediate_size": 8}}}, model.ErrConfig, "per_layer_config: 1: bad config.json: intermediate_size: unknown key"},
		{"Cohere2ForCausalLM", map[string]any{"sliding_window_pattern": 0}, model.ErrConfig, "sliding_window_pattern: found 0"},
	} {
		c.changes["architectures"] = []string{c.class}
		_, err := model.ParseConfig(llamaConfig(c.changes))
		require.ErrorIs(t, err, c.kind, "%v", c.changes)
		require.ErrorContains(t, err, c.says)
	}
}

// nothing is an explicit null.
type nothing struct{}

func (nothing) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func make1s(n int) []float64 {
	ones := make([]float64, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}

// TestPythonNumbers: config.json may hold the numbers that Python writes and JSON lacks.
func TestPythonNumbers(t *testing.T) {
	f, err := model.ParseFields([]byte(`{"a \"Infinity": [0.0, Infinity], "b": -Infinity, "c": NaN, "d": "NaN\\"}`))
	require.NoError(t, err)
	require.Equal(t, `NaN\`, f.String("d", ""))
	require.NoError(t, f.Err())
	f.Float("b", 1)
	require.ErrorContains(t, f.Err(), `b: found "-Infinity", expected a number`)
	_, err = model.ParseFields([]byte(`{"a": Inf}`))
	require.ErrorIs(t, err, model.ErrConfig)
}
