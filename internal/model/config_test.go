package model_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/safetensors"
)

// llamaConfig is a valid config.json with changes; nil removes a key.
func llamaConfig(changes map[string]any) []byte {
	c := map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 128,
	}
	maps.Copy(c, changes)
	for k, v := range c {
		if v == nil {
			delete(c, k)
		}
	}
	raw, _ := json.Marshal(c)
	return raw
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		changes map[string]any
		kind    error
		says    string
	}{
		{map[string]any{"architectures": []string{"LlamaForCausalML"}}, model.ErrUnsupported, `architecture "LlamaForCausalML", did you mean "LlamaForCausalLM"?; nearest of the `},
		{map[string]any{"architectures": []string{"Gemma9ForCausalLM"}}, model.ErrUnsupported, `architecture "Gemma9ForCausalLM", did you mean "Gemma`},
		{map[string]any{"architectures": nil, "model_type": "falcon"}, model.ErrUnsupported, `architecture "falcon"`},
		{map[string]any{"hidden_size": nil}, model.ErrConfig, "hidden_size: found nothing, expected an integer"},
		{map[string]any{"hidden_size": "64"}, model.ErrConfig, `hidden_size: found "64", expected an integer`},
		{map[string]any{"hidden_size": 0}, model.ErrConfig, "hidden_size: found 0, expected 1 to 1073741824"},
		{map[string]any{"num_attention_heads": 0}, model.ErrConfig, "num_attention_heads: found 0"},
		{map[string]any{"num_key_value_heads": 3}, model.ErrConfig, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"},
		{map[string]any{"head_dim": 15}, model.ErrConfig, "head_dim: found 15, expected an even number"},
		{map[string]any{"hidden_act": "mish"}, model.ErrUnsupported, `hidden_act "mish"; supported: gelu, gelu_fast, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, silu, swish`},
		{map[string]any{"rms_norm_eps": -1}, model.ErrConfig, "rms_norm_eps"},
		{map[string]any{"quantization": map[string]any{"bits": 4, "group_size": 64}}, model.ErrUnsupported, "quantization: weights of mlx-lm with 4 bits"},
		{map[string]any{"quantization_config": map[string]any{"quant_method": "exl2"}}, model.ErrUnsupported, `quant_method "exl2" (of ExLlamaV2); supported: awq, bitsandbytes`},
		{map[string]any{"quantization_config": map[string]any{"bits": 4}}, model.ErrUnsupported, "quantization_config"},
		{map[string]any{"pretraining_tp": 2}, model.ErrUnsupported, `pretraining_tp "2"; supported: 1`},
		{map[string]any{"rope_parameters": map[string]any{"rope_type": "proportional"}}, model.ErrUnsupported, `rope_type "proportional"; supported: default, linear, dynamic, yarn, llama3, longrope`},
		{map[string]any{"rope_parameters": map[string]any{"rope_type": "linear"}}, model.ErrConfig, "factor: found nothing"},
		{map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": -2}}, model.ErrConfig, "factor -2"},
		{map[string]any{"rope_scaling": 4}, model.ErrConfig, "rope_scaling: found 4, expected an object"},
		{map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{}, "rope_type": "x"}}, model.ErrUnsupported, "one table for all layers"},
		{map[string]any{"partial_rotary_factor": 0.5}, model.ErrUnsupported, `partial_rotary_factor "0.5"; supported: 1`},
		{map[string]any{"architectures": []string{"Qwen2ForCausalLM"}, "layer_types": []string{"full_attention"}}, model.ErrConfig, "layer_types: found 1 entries, expected 2, one for each layer"},
		{map[string]any{"architectures": []string{"Qwen3ForCausalLM"}, "layer_types": []string{"full_attention", "linear_attention"}}, model.ErrUnsupported, `layer_types "linear_attention"`},
		{map[string]any{"architectures": []string{"MistralForCausalLM"}, "sliding_window": -5}, model.ErrConfig, "sliding_window: found -5"},
		{map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "final_logit_softcapping": 30.0}, model.ErrUnsupported, `final_logit_softcapping "30"; supported: null`},
		{map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "query_pre_attn_scalar": 0}, model.ErrConfig, "query_pre_attn_scalar: found 0, expected more than 0"},
		{map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "rope_parameters": map[string]any{"rope_type": "default"}}, model.ErrConfig, "rope_parameters: found one table, expected one for each layer type"},
		{map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "rope_parameters": map[string]any{"full_attention": 3}}, model.ErrConfig, "full_attention: found 3, expected an object"},
		{map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "rope_parameters": map[string]any{"full_attention": map[string]any{"rope_type": "linear"}}}, model.ErrConfig, "rope_parameters.full_attention: "},
		{map[string]any{"architectures": []string{"Gemma3ForCausalLM"}, "sliding_window_pattern": 0, "rope_parameters": nil}, model.ErrConfig, "sliding_window_pattern: found 0"},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "final_logit_softcapping": 0.0}, model.ErrConfig, "final_logit_softcapping: found 0, expected null or a positive float32"},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "attn_logit_softcapping": -50}, model.ErrConfig, "attn_logit_softcapping: found -50"},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "attn_logit_softcapping": "50"}, model.ErrConfig, `attn_logit_softcapping: found "50", expected a number`},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "attn_logit_softcapping": 1e60}, model.ErrConfig, "attn_logit_softcapping: found 1e+60"},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "use_bidirectional_attention": true}, model.ErrUnsupported, `use_bidirectional_attention "true"; supported: false`},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "sliding_window": 0}, model.ErrConfig, "sliding_window: found 0, expected 1 or more"},
		{map[string]any{"architectures": []string{"Gemma2ForCausalLM"}, "rope_parameters": map[string]any{"full_attention": map[string]any{}}}, model.ErrUnsupported, "one table for all layers"},
		{map[string]any{"architectures": []string{"Olmo2ForCausalLM"}, "head_dim": 7}, model.ErrConfig, "head_dim: found 7, expected an even number"},
		{map[string]any{"architectures": []string{"Olmo2ForCausalLM"}, "clip_qkv": 8.0}, model.ErrUnsupported, `clip_qkv "8"; supported: null`},
		{map[string]any{"architectures": []string{"Olmo2ForCausalLM"}, "layer_types": []string{"sliding_attention", "full_attention"}}, model.ErrUnsupported, `layer_types "sliding_attention"; supported: full_attention`},
		{map[string]any{"architectures": []string{"MixtralForCausalLM"}, "num_local_experts": 2, "num_experts_per_tok": 3}, model.ErrConfig, "num_experts_per_tok: found 3, expected at most num_local_experts 2"},
		{map[string]any{"architectures": []string{"MixtralForCausalLM"}, "num_local_experts": 1 << 20}, model.ErrConfig, "num_local_experts: found 1048576, expected 4096 at most"},
		{map[string]any{"architectures": []string{"MixtralForCausalLM"}, "num_experts_per_tok": 0}, model.ErrConfig, "num_experts_per_tok: found 0"},
		{map[string]any{"architectures": []string{"MixtralForCausalLM"}, "router_jitter_noise": 0.5}, model.ErrUnsupported, `router_jitter_noise "0.5"; supported: 0`},
		{map[string]any{"architectures": []string{"Qwen3MoeForCausalLM"}, "decoder_sparse_step": 0}, model.ErrConfig, "decoder_sparse_step: found 0, expected 1 or more"},
		{map[string]any{"architectures": []string{"Qwen3MoeForCausalLM"}, "mlp_only_layers": "x"}, model.ErrConfig, `mlp_only_layers: found "x", expected a list of layers`},
		{map[string]any{"architectures": []string{"Qwen3MoeForCausalLM"}, "moe_intermediate_size": -1}, model.ErrConfig, "moe_intermediate_size: found -1"},
		{map[string]any{"architectures": []string{"Qwen2MoeForCausalLM"}}, model.ErrUnsupported, `architecture "Qwen2MoeForCausalLM", did you mean "Qwen3MoeForCausalLM"?`},
		{map[string]any{"eos_token_id": "x"}, model.ErrConfig, "a token id or a list of them"},
	} {
		_, err := model.ParseConfig(llamaConfig(c.changes))
		require.ErrorIs(t, err, c.kind, "%v", c.changes)
		require.ErrorContains(t, err, c.says)
	}
	for _, raw := range []string{"", "null", "[]", "{", `"x"`} {
		_, err := model.ParseConfig([]byte(raw))
		require.ErrorIs(t, err, model.ErrConfig, "%q", raw)
	}
}

// Of several faults in one config.json, every run reports the same.
func TestConfigErrorsOrder(t *testing.T) {
	quantized := func(c string) map[string]any { return map[string]any{"quantization_config": json.RawMessage(c)} }
	for _, c := range []struct {
		from    string
		changes map[string]any
		says    string
	}{
		{"encoders/deberta-v2", map[string]any{"embedding_size": 1, "pooler_hidden_size": 1, "attention_head_size": 1, "conv_kernel_size": 3}, "attention_head_size"},
		{"encoders/gte", map[string]any{"position_embedding_type": "x", "layer_norm_type": "x"}, "layer_norm_type"},
		{"encoders/nomic-bert", map[string]any{"rotary_emb_fraction": 0.5, "rotary_emb_scale_base": 2, "moe_every_n_layers": 2}, "moe_every_n_layers"},
		{"lm/llama/model", quantized(`{"quant_method": "fp8", "scale_fmt": "x", "expert_dtype": "x", "fmt": "x"}`), "expert_dtype"},
		{"lm/llama/model", quantized(`{"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"a": {"weights": {}}, "b": {"weights": {}}, "c": {"weights": {}}}}`), "config_groups.a.weights"},
		{"lm/llama/model", quantized(`{"quant_method": "gptq", "dynamic": {"+:a": {"bits": 7}, "+:b": {"bits": 6}, "+:c": {"bits": 5}}}`), "dynamic: +:a"},
	} {
		raw, err := os.ReadFile(filepath.Join("../../testdata", c.from, "config.json"))
		require.NoError(t, err)
		var config map[string]any
		require.NoError(t, json.Unmarshal(raw, &config))
		maps.Copy(config, c.changes)
		raw, err = json.Marshal(config)
		require.NoError(t, err)
		for range 20 {
			_, err = model.ParseConfig(raw)
			require.ErrorContains(t, err, c.says)
		}
	}
}

// Weights that are missing, of a wrong shape or of an unusable type are found
// when the checkpoint is opened, each in one line.
func TestOpenChecksWeights(t *testing.T) {
	const good = "../../testdata/lm/llama/model"
	f, err := safetensors.Open(filepath.Join(good, "model.safetensors"))
	require.NoError(t, err)
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		entries = append(entries, v.Entry())
	}
	open := func(change func([]safetensors.Entry) []safetensors.Entry) error {
		dir := t.TempDir()
		raw, err := os.ReadFile(filepath.Join(good, "config.json"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o666))
		changed := change(append([]safetensors.Entry(nil), entries...))
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), changed, nil))
		m, err := model.Open(dir)
		if err == nil {
			m.Close()
		}
		return err
	}
	const q = "model.layers.1.self_attn.q_proj.weight"
	index := func(es []safetensors.Entry) int {
		for i, e := range es {
			if e.Name == q {
				return i
			}
		}
		t.Fatal("no " + q)
		return 0
	}
	require.NoError(t, open(func(es []safetensors.Entry) []safetensors.Entry { return es }))

	err = open(func(es []safetensors.Entry) []safetensors.Entry { i := index(es); return append(es[:i], es[i+1:]...) })
	require.ErrorIs(t, err, nn.ErrMissing)
	require.ErrorContains(t, err, q)
	require.ErrorContains(t, err, "model.layers.0.self_attn.q_proj.weight", "the nearest name")

	err = open(func(es []safetensors.Entry) []safetensors.Entry { es[index(es)].Shape = []int{32, 128}; return es })
	require.ErrorIs(t, err, nn.ErrShape)
	require.ErrorContains(t, err, `"`+q+`" is [32 128], expected [64 64] from config.json`)

	err = open(func(es []safetensors.Entry) []safetensors.Entry {
		es[index(es)].DType = safetensors.I32
		return es
	})
	require.ErrorContains(t, err, "elements of type I32; supported: F32, F16, BF16")
}

// The loss of balance is what output_router_logits asks for.
func TestBalance(t *testing.T) {
	for _, c := range []struct {
		keys map[string]any
		want float64
	}{
		{nil, 0},
		{map[string]any{"router_aux_loss_coef": 0.5}, 0},
		{map[string]any{"output_router_logits": true}, 0.001},
		{map[string]any{"output_router_logits": true, "router_aux_loss_coef": 0.5}, 0.5},
		{map[string]any{"output_router_logits": true, "router_aux_loss_coef": 0}, 0},
	} {
		keys := map[string]any{"architectures": []string{"MixtralForCausalLM"}}
		maps.Copy(keys, c.keys)
		config, err := model.ParseConfig(llamaConfig(keys))
		require.NoError(t, err)
		m := config.Mixture()
		require.Equal(t, c.want, m.Balance, c.keys)
		require.Equal(t, c.want != 0, m.Experts.Balanced, c.keys)
	}
}
