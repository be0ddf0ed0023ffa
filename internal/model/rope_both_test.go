package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
)

// TestRopeKeysOfBothVersions: of a file with rope_parameters and rope_scaling that differ, the
// values are those of transformers 5.24.
func TestRopeKeysOfBothVersions(t *testing.T) {
	const sizes = `"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128`
	const linear, tables = `{"rope_type": "linear", "factor": 2, "rope_theta": 500}`, `{"full_attention": {"rope_type": "linear", "factor": 2, "rope_theta": 500}, "sliding_attention": {"rope_type": "default", "rope_theta": 600}}`
	for _, c := range []struct{ class, parameters, scaling, want string }{
		{"LlamaForCausalLM", linear, `{"type": "dynamic", "factor": 4}`, `{"Type": "dynamic", "Theta": 70, "Factor": 4}`},
		{"LlamaForCausalLM", linear, `{"rope_type": "linear", "factor": 3, "rope_theta": 90}`, `{"Type": "linear", "Theta": 90, "Factor": 3}`},
		{"LlamaForCausalLM", linear, `{}`, `{"Type": "linear", "Theta": 500, "Factor": 2}`},
		{"LlamaForCausalLM", linear, `null`, `{"Type": "linear", "Theta": 500, "Factor": 2}`},
		{"LlamaForCausalLM", `null`, `{}`, `{"Type": "default", "Theta": 70}`},
		{"Qwen2VLForConditionalGeneration", linear, `{"type": "mrope", "mrope_section": [2, 3, 3]}`, `{"Type": "default", "Theta": 70}`},
		{"Qwen2VLForConditionalGeneration", linear, `{"type": "mrope"}`, `{"Type": "default", "Theta": 70}`},
		{"Phi3ForCausalLM", `{"rope_type": "linear", "factor": 2}`, `{"type": "default"}`, `{"Type": "default", "Theta": 70}`},
		{"GptOssForCausalLM", `null`, `{}`, `{"Type": "yarn", "Theta": 70, "Factor": 32, "Original": 4096}`},
		{"GptOssForCausalLM", `null`, `{"rope_type": "linear", "factor": 3}`, `{"Type": "linear", "Theta": 70, "Factor": 3}`},
		{"ApertusForCausalLM", `null`, `{}`, `{"Type": "llama3", "Theta": 12000000, "Factor": 8, "Original": 8192}`},
		{"Gemma3ForCausalLM", tables, `{"rope_type": "linear", "factor": 4}`, `{"Type": "linear", "Theta": 500, "Factor": 4}`},
		{"Gemma3ForCausalLM", tables, `{"type": "dynamic", "factor": 4}`, `{"Type": "linear", "Theta": 500, "Factor": 4}`},
		{"Gemma3ForCausalLM", `null`, `{"rope_type": "linear", "factor": 4}`, `{"Type": "linear", "Theta": 70, "Factor": 4}`},
		{"Olmo3ForCausalLM", tables, `{"rope_type": "linear", "factor": 4, "rope_theta": 90}`, `{"Type": "linear", "Theta": 90, "Factor": 4}`},
	} {
		text := fmt.Sprintf(`{"architectures": [%q], %s, "rope_theta": 70, "rope_parameters": %s, "rope_scaling": %s}`, c.class, sizes, c.parameters, c.scaling)
		parsed, err := model.ParseConfig([]byte(text))
		require.NoError(t, err, text)
		raw, err := json.Marshal(parsed.Family)
		require.NoError(t, err)
		var family struct{ RoPE map[string]any }
		require.NoError(t, json.Unmarshal(raw, &family))
		want := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(c.want), &want))
		maps.DeleteFunc(family.RoPE, func(key string, _ any) bool { _, ok := want[key]; return !ok })
		require.Equal(t, want, family.RoPE, text)
	}
	for config, says := range map[string]string{
		`"rope_parameters": {"sliding_attention": {"rope_type": "default"}}, "rope_scaling": {"rope_type": "linear", "factor": 4}`: "rope_parameters: found nothing for full_attention, expected a table, which rope_scaling changes",
		`"rope_parameters": {}, "rope_scaling": {"rope_type": "linear"}`:                                                           "factor: found nothing",
	} {
		_, err := model.ParseConfig([]byte(`{"architectures": ["Gemma3ForCausalLM"], ` + sizes + `, ` + config + `}`))
		require.ErrorContains(t, err, says)
	}
}
