package migrate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/train/config"
	"github.com/lorafuse/lorafuse/train/config/migrate"
)

func keys(notes []migrate.Note) (all []string) {
	for _, n := range notes {
		all = append(all, n.Key)
	}
	return all
}

func TestConvert(t *testing.T) {
	for file, c := range map[string]struct {
		source, yaml  string
		dropped, todo []string
	}{
		"axolotl.yml": {"axolotl", `
model: NousResearch/Meta-Llama-3-8B
output_dir: ./outputs/qlora-out
data: {train: [tatsu-lab/alpaca], eval_fraction: 0.05, max_length: 4096, on_too_long: drop, packing: true}
adapter: {r: 32, lora_alpha: 16, target_modules: all-linear, lora_dropout: 0.05}
batch_size: 2
gradient_accumulation_steps: 4
epochs: 4
learning_rate: 2e-4
schedule: cosine
warmup_steps: 10
optimizer: adamw
weight_decay: 0
activation_checkpointing: true
precision: auto
quantize: nf4
save_best: true
best_metric: eval_accuracy
log: {steps: 1}`, []string{"neftune_noise_alpha"}, []string{"data.chat_template", "eval_steps"}},
		"llamafactory.yaml": {"LLaMA-Factory", `
model: meta-llama/Meta-Llama-3-8B-Instruct
output_dir: saves/dpo
task: preference
preference: {beta: 0.2}
data: {train: [dpo_en_demo], max_length: 2048, chat_template: llama3}
adapter: {r: 8, lora_alpha: 16, target_modules: [q_proj, v_proj], lora_dropout: 0}
batch_size: 1
gradient_accumulation_steps: 8
epochs: 3
learning_rate: 5e-6
schedule: cosine
warmup_ratio: 0.1
save_steps: 500
precision: bf16
log: {steps: 10}`, []string{"max_samples"}, []string{"data.train"}},
		"mlx.yaml": {"mlx-lm", `
model: mlx_model
output_dir: adapters
data: {train: [/data/rows/train.jsonl], eval: [/data/rows/valid.jsonl], train_on: all, max_length: 2048}
adapter: {r: 8, lora_alpha: 160, target_modules: [self_attn.q_proj, self_attn.v_proj], lora_dropout: 0}
batch_size: 4
steps: 1000
learning_rate: 2e-5
schedule: cosine
warmup_steps: 100
weight_decay: 0.01
optimizer: adamw
max_grad_norm: 0
seed: 0
activation_checkpointing: false
eval_steps: 200
eval_at_start: true
save_steps: 100
log: {steps: 10}`, []string{"lr_schedule.arguments", "lr_schedule.warmup_init", "optimizer", "val_batches"}, []string{"adapter.layers_to_transform"}},
		"flymyai.yaml": {"FlyMyAI's trainer", `
model: Qwen/Qwen-Image
output_dir: ./saves
task: diffusion
diffusion: {images: ./pictures, caption_dropout_rate: 0.1}
adapter: {r: 16, lora_alpha: 16, target_modules: [to_k, to_q, to_v, to_out.0], lora_dropout: 0, init_lora_weights: gaussian}
batch_size: 1
steps: 3000
learning_rate: 3e-4
schedule: constant
optimizer: adamw_8bit
betas: [0.9, 0.99]
eps: 1e-8
weight_decay: 0.01
max_grad_norm: 1
save_steps: 250
save_limit: 10
precision: bf16
quantize: int8`, []string{"data_config.img_size", "warmup_steps"}, nil},
		"aitoolkit.yaml": {"ai-toolkit", `
model: Qwen/Qwen-Image
output_dir: output/my_lora
task: diffusion
diffusion: {images: /data/pictures, caption_dropout_rate: 0.05, timesteps: sigmoid, sample_prompts: [a red fox, a horse], sample_width: 1024, sample_height: 768, sample_steps: 25, sample_guidance: 3}
adapter: {r: 16, lora_alpha: 8, target_modules: all-linear, lora_dropout: 0}
batch_size: 1
gradient_accumulation_steps: 2
steps: 2000
learning_rate: 1e-4
schedule: constant
optimizer: adamw_8bit
weight_decay: 0.01
max_grad_norm: 1
activation_checkpointing: true
save_steps: 250
save_limit: 4
sample_every: 250
precision: bf16
quantize: fp8`, []string{"train.ema_config.use_ema"}, []string{"diffusion.cache"}},
		"kohya.toml": {"kohya's sd-scripts", `
model: models/qwen-image
output_dir: out
task: diffusion
diffusion: {images: pictures, timesteps: shift, shift: 2.2}
adapter: {r: 32, lora_alpha: 1, target_modules: all-linear, lora_dropout: 0}
batch_size: 2
gradient_accumulation_steps: 3
steps: 1600
learning_rate: 2e-4
schedule: cosine
warmup_steps: 160
optimizer: adamw_8bit
betas: [0.9, 0.99]
weight_decay: 0.1
max_grad_norm: 1
seed: 7`, []string{"mixed_precision", "noise_offset"}, []string{"diffusion.images"}},
		"simpletuner.json": {"SimpleTuner", `
output_dir: output/x
task: diffusion
diffusion: {timesteps: shift, shift: 1.73, sample_prompts: a fox, sample_width: 1024, sample_height: 768}
adapter: {r: 8, lora_alpha: 4, lora_dropout: 0.1}
batch_size: 1
steps: 100
learning_rate: 1e-4
schedule: polynomial
warmup_steps: 100
optimizer: adamw
weight_decay: 0.01
max_grad_norm: 0.01
activation_checkpointing: true
save_steps: 50
sample_every: 50
save_limit: 5
precision: bf16
quantize: int8`, []string{"data_backend_config", "use_ema"}, []string{"diffusion.images", "model"}},
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		r, err := migrate.Convert(file, raw)
		require.NoError(t, err, file)
		assert.Equal(t, c.source, r.Source, file)
		var got, want map[string]any
		require.NoError(t, yaml.Unmarshal(r.YAML, &got))
		require.NoError(t, yaml.Unmarshal([]byte(c.yaml), &want))
		assert.Equal(t, floats(want), floats(got), file)
		assert.Equal(t, c.dropped, keys(r.Dropped), file)
		assert.Equal(t, c.todo, keys(r.Todo), file)
		_, err = config.Parse(file, r.YAML)
		if bad, ok := errors.AsType[*config.Error](err); ok {
			assert.Contains(t, keys(r.Todo), bad.Key, "%s: %v", file, err)
		}
	}
}

// floats makes all numbers of a value floats, to compare them.
func floats(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case map[string]any:
		for key := range v {
			v[key] = floats(v[key])
		}
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	}
	return v
}

func TestConvertRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"a: 1\nb: 2\n": "found a, b, expected the keys of FlyMyAI's trainer, LLaMA-Factory, SimpleTuner, ai-toolkit, axolotl, kohya's sd-scripts, mlx-lm",
		"- 1\n":        "expected a mapping of keys to values",
		"a: [\n":       "not valid YAML",
	} {
		_, err := migrate.Convert("x.yaml", []byte(text))
		assert.ErrorContains(t, err, says)
	}
	_, err := migrate.Convert("x.toml", []byte("a = "))
	assert.ErrorContains(t, err, "x.toml: not valid TOML")
	assert.Empty(t, migrate.Detect("x.yaml", []byte("model: x\ndata: {train: y}\n")))
}

func TestMeaning(t *testing.T) {
	ours, _, _ := migrate.Meaning("axolotl", "lora_r")
	assert.Equal(t, "adapter.r", ours)
	ours, _, _ = migrate.Meaning("", "peft_use_dora")
	assert.Equal(t, "adapter.use_dora", ours)
	_, why, _ := migrate.Meaning("LLaMA-Factory", "fp16")
	assert.Contains(t, why, "half precision")
	_, _, idle := migrate.Meaning("axolotl", "wandb_project")
	assert.True(t, idle)
	assert.Empty(t, migrate.Detect("x.yaml", []byte("model: x\nnum_epochs: 3\n")), "one slip")
	assert.Equal(t, "axolotl", migrate.Detect("x.yaml", []byte("base_model: x\nnum_epochs: 3\n")))
}

// TestLargeFiles: aliases that stand for many values, deep nesting and cycles are refused at once.
func TestLargeFiles(t *testing.T) {
	bomb := "lora_r: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("k%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i+1, i, i, i, i, i, i)
	}
	for name, text := range map[string]string{
		"bomb.yaml": bomb, "cycle.yaml": "lora_r: &a [*a]\n", "deep.yaml": "lora_r: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"deep.toml": "a = " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "wide.toml": "a = [" + strings.Repeat("1,", 20_000) + "]",
	} {
		_, err := migrate.Convert(name, []byte(text))
		assert.ErrorContains(t, err, "expected at most 10000 values in 32 levels", name)
	}
}

// FuzzConvert sees that any file is converted to valid YAML or refused.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(filepath.Ext(file) == ".toml", raw)
	}
	f.Fuzz(func(t *testing.T, isTOML bool, raw []byte) {
		name := "x.yaml"
		if isTOML {
			name = "x.toml"
		}
		r, err := migrate.Convert(name, raw)
		if err != nil {
			return
		}
		var out map[string]any
		require.NoError(t, yaml.Unmarshal(r.YAML, &out), "%s", r.YAML)
		_, err = config.Parse(name, r.YAML)
		if err != nil {
			require.False(t, errors.Is(err, config.ErrSyntax) || errors.Is(err, config.ErrUnknownKey), "%v\n%s", err, r.YAML)
		}
		require.True(t, strings.HasPrefix(string(r.YAML), "# Converted from x."))
	})
}
