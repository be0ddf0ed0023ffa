package config

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
)

// TestLoRA: the block becomes the configuration that PEFT's file of the same
// settings does.
func TestLoRA(t *testing.T) {
	c, err := Parse("c.yaml", []byte(full))
	require.NoError(t, err)
	want, err := lora.ParseConfig([]byte(`{"peft_type": "LORA", "peft_version": "0.21.2", "task_type": "CAUSAL_LM",
		"inference_mode": true, "qalora_group_size": 16, "megatron_core": "megatron.core", "loftq_config": {},
		"r": 16, "lora_alpha": 32.5, "target_modules": ["q_proj", "v_proj"], "exclude_modules": ".*\\.3\\..*",
		"lora_dropout": 0.1, "bias": "lora_only", "modules_to_save": ["lm_head"], "use_rslora": true, "use_dora": true,
		"rank_pattern": {"v_proj": 4, "layers.0.*": 10}, "alpha_pattern": {"q_proj": 2.5},
		"layers_to_transform": [0, 3], "layers_pattern": ["layers"], "init_lora_weights": "pissa_niter_4",
		"fan_in_fan_out": true, "lora_bias": true, "trainable_token_indices": {"embed_tokens": [1, 2], "lm_head": [3]}}`))
	require.NoError(t, err)
	assert.JSONEq(t, string(want.JSON()), string(c.Adapter.LoRA().JSON()))

	assert.Equal(t, lora.DefaultConfig().R, Default().Adapter.LoRA().R)
	assert.Equal(t, []string{"gate.weight"}, Adapter{TargetParameters: Strings{"gate.weight"}}.LoRA().TargetParameters)
	ids := Adapter{TrainableTokenIndices: TokenIndices{IDs: []int{5, 6}}}.LoRA().TrainableTokenIndices
	assert.Equal(t, []lora.TokenRows{{Tokens: []int{5, 6}}}, ids)
}

// TestKeysOfPEFT: every key of PEFT's configuration is in the table, or refused
// by its name.
func TestKeysOfPEFT(t *testing.T) {
	var all map[string]any
	require.NoError(t, json.Unmarshal(lora.DefaultConfig().JSON(), &all))
	for name := range all {
		_, known := byPath()["adapter."+name]
		assert.NotEqual(t, known, slices.Contains(unsupported, name), name)
	}
}

// TestLyCORIS: the block selects PEFT's LoHaConfig or LoKrConfig, and keys of LoRA alone are rejected.
func TestLyCORIS(t *testing.T) {
	parse := func(adapter string) (*Config, error) {
		return Parse("c.yaml", []byte("model: m\ndata: {train: [a.jsonl]}\nadapter: {"+adapter+"}\n"))
	}
	c, err := parse("lycoris: lokr, r: 3, lora_alpha: 5, decompose_both: true, decompose_factor: 4, target_modules: [q_proj], rank_pattern: {v_proj: 4}")
	require.NoError(t, err)
	want, err := lora.ParseConfig([]byte(`{"peft_type": "LOKR", "peft_version": "0.21.2", "task_type": "CAUSAL_LM", "inference_mode": true,
		"r": 3, "alpha": 5, "decompose_both": true, "decompose_factor": 4, "target_modules": ["q_proj"], "rank_pattern": {"v_proj": 4}}`))
	require.NoError(t, err)
	require.Empty(t, want.Warnings)
	assert.JSONEq(t, string(want.JSON()), string(c.Adapter.LoRA().JSON()))
	c, err = parse("lycoris: loha, init_lora_weights: false")
	require.NoError(t, err)
	assert.Equal(t, "LOHA", c.Adapter.LoRA().PeftType)
	for adapter, says := range map[string]string{
		"lycoris: loha, use_dora: true":           "adapter.lycoris",
		"lycoris: lokr, lora_dropout: 0.1":        "adapter.lycoris",
		"lycoris: lokr, init_lora_weights: pissa": "adapter.lycoris",
		"lycoris: loha, decompose_factor: 4":      "adapter.decompose_factor",
		"decompose_both: true":                    "adapter.decompose_factor",
		"lycoris: lokr, decompose_factor: 0":      "adapter.decompose_factor",
		"lycoris: locon":                          `found "locon"`,
	} {
		_, err := parse(adapter)
		require.ErrorContains(t, err, says, adapter)
	}
}
