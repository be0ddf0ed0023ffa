package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTrainersFile: a file of another trainer needs the task alone.
func TestTrainersFile(t *testing.T) {
	const theirs = `
pretrained_model_name_or_path: Qwen/Qwen-Image
data_config:
  img_dir: pictures
  control_dir: before
  train_batch_size: 2
  caption_dropout_rate: 0.1
  use_bucketing: true
  caption_type: txt
train_batch_size: 2
output_dir: out
max_train_steps: 3000
learning_rate: 1e-4
lr_scheduler: cosine
lr_warmup_steps: 10
adam_beta2: 0.99
adam_weight_decay: 0.01
adam_epsilon: 1e-8
max_grad_norm: 1.0
mixed_precision: bf16
checkpointing_steps: 250
checkpoints_total_limit: 10
resume_from_checkpoint: latest
gradient_accumulation_steps: 4
gradient_checkpointing: true
rank: 16
quantize: true
report_to: null
precompute_text_embeddings: true
disable_sampling: true
sample_every: 250
sample_width: 1024
sample_height: 768
sample_steps: 20
`
	for _, sets := range [][]string{{"task=diffusion"}, nil} {
		text := theirs
		if sets == nil {
			text += "task: diffusion\n"
		}
		c, err := Parse("theirs.yaml", []byte(text), sets...)
		require.NoError(t, err)
		again, err := c.YAML()
		require.NoError(t, err)
		read, err := Parse("again.yaml", again)
		require.NoError(t, err)
		for _, c := range []*Config{c, read} {
			assert.Equal(t, TaskDiffusion, c.Task)
			assert.Equal(t, "Qwen/Qwen-Image", c.Model)
			assert.Equal(t, "pictures", c.Diffusion.Images)
			assert.Equal(t, "before", c.Diffusion.Controls)
			assert.Equal(t, "out/cache", c.CacheDir())
			assert.Equal(t, []int{2, 4, 3000, 10, 250, 10}, []int{c.BatchSize, c.GradientAccumulationSteps, c.Steps, c.WarmupSteps, c.SaveSteps, c.SaveLimit})
			assert.Equal(t, 0.1, c.Diffusion.CaptionDropoutRate)
			assert.Equal(t, []any{"cosine", "bf16", "int8", "latest"}, []any{string(c.Schedule), c.Precision.String(), string(c.Quantize), c.Resume})
			assert.Equal(t, [2]float64{0.9, 0.99}, c.Betas)
			assert.Equal(t, []float64{0.01, 1e-4}, []float64{c.WeightDecay, c.LearningRate})
			assert.Equal(t, 16, c.Adapter.R)
			assert.Equal(t, 16.0, c.Adapter.LoraAlpha)
			assert.True(t, c.ActivationCheckpointing)
			assert.False(t, c.Log.TensorBoard)
			assert.Zero(t, c.Epochs)
			d := c.Diffusion
			assert.Equal(t, []int{250, 1024, 768, 20}, []int{c.SampleEvery, d.SampleWidth, d.SampleHeight, d.SampleSteps})
			assert.False(t, d.DrawSamples)
		}
		assert.True(t, c.Given("diffusion.images"))
	}
	for _, adapter := range []string{"", "adapter:\n", "adapter: {r: 4}\n", "adapter: {lora_alpha: 8}\n"} {
		c, err := Parse("theirs.yaml", []byte("task: diffusion\npretrained_model_name_or_path: m\nimg_dir: d\nrank: 4\nlora_alpha: 8\n"+adapter))
		require.NoError(t, err)
		assert.Equal(t, 8.0, c.Adapter.LoraAlpha)
		assert.Equal(t, 4, c.Adapter.R)
	}
}

func TestDiffusionErrors(t *testing.T) {
	const least = "task: diffusion\nmodel: m\n"
	for text, says := range map[string]string{
		"":                                     "diffusion.images: missing, expected: Folder of the pictures",
		"img_dir: d\n":                         "",
		"img_dir: d\ndiffusion: {images: e}\n": "t:3: img_dir: found d, and e for diffusion.images: expected one of the two",
		"img_dir: d\ntrain_batch_size: 1\ndata_config:\n  train_batch_size: 2\n": "t:6: data_config.train_batch_size: found 2, and 1 for train_batch_size: expected one of the two",
		"img_dir: d\nmax_train_step: 1\n":                                        "t:4: max_train_step: unknown key",
		"img_dir: d\nmax_train_steps: many\n":                                    `t:4: steps: found "many", expected a whole number`,
		"img_dir: d\nnoise_offset: 0.1\n":                                        "t:4: noise_offset: nothing reads it here, expected without it",
		"img_dir: d\nweighting_scheme: mode\n":                                   `t:4: weighting_scheme: expected "diffusion.timesteps" for a density`,
		"data_config: {img_dir: d, img_size: 1024}\n":                            "t:3: data_config.img_size: pictures have the size that they are cached in",
		"data_config: {img_dir: d, img_dirs: e}\n":                               "t:3: data_config.img_dirs: unknown key",
		"img_dir: d\nsave_cache_on_disk: false\n":                                "t:4: save_cache_on_disk: found false, expected true: training reads a cache",
		"img_dir: d\nmixed_precision: fp16\n":                                    `t:4: mixed_precision: found "fp16", expected bf16 or no`,
		"img_dir: d\nadam_beta1: 2\n":                                            "betas: found 2, expected a list of 2 numbers",
		"img_dir: d\nadam8bit: true\n":                                           "",
		"img_dir: d\ndata: {train: x}\n":                                         "t:4: data.train: belongs to texts, expected without it for task: diffusion",
		"img_dir: d\neval_steps: 3\n":                                            "t:4: eval_steps: belongs to texts",
		"img_dir: d\njobs: [{name: a}]\n":                                        "jobs[a]",
		"img_dir: d\nadapter: {task_type: CAUSAL_LM}\n":                          "t:1: task: given besides another adapter.task_type, expected one of the two",
		"img_dir: d\ndiffusion: {shift: 2}\n":                                    "t:4: diffusion.shift: belongs to timesteps: shift",
		"img_dir: d\ndiffusion: {timesteps: modes}\n":                            `t:4: diffusion.timesteps: found "modes", expected none, logit_normal, mode, sigmoid, shift, flux_shift or qwen_shift, did you mean "mode"?`,
		"img_dir: d\nnetwork_dim: 4\nnetwork_alpha: 2\noptimizer_type: AdamW8bit\nfp8_base: true\ntimestep_sampling: shift\ndiscrete_flow_shift: 2.2\ncache_latents: true\n": "",
		"img_dir: d\nvalidation_prompt: a fox\n":    "t:4: diffusion.sample_prompts: given without sample_every",
		"img_dir: d\noptimizer_type: Prodigy\n":     `t:4: optimizer_type: found "Prodigy", expected AdamW, AdamW8bit, adamw or adamw8bit`,
		"img_dir: d\nresolution: [512, 768]\n":      "t:4: resolution: pictures have the size that they are cached in: lorafuse data cache --resolution",
		"img_dir: d\nflip_aug: true\n":              "t:4: flip_aug: found true, expected false: pictures are not flipped",
		"img_dir: d\ntrigger_word: ohwx\n":          "t:4: trigger_word: captions are .txt files: write it into each",
		"img_dir: d\nlora_layers: attn.to_k\n":      `t:4: lora_layers: expected "adapter: {target_modules: [`,
		"img_dir: d\nnum_repeats: 10\n":             `t:4: num_repeats: found 10, expected 1: pictures are shown as often as "epochs" or "steps" says`,
		"img_dir: d\ncaption_extension: .caption\n": `t:4: caption_extension: found ".caption", expected txt or .txt`,
		"img_dir: d\nrank: 4\nnetwork_dim: 8\n":     "t:5: network_dim: found 8, and 4 for rank: expected one of the two",
		"img_dir: d\nembedding: {scale: 3}\n":       "embedding.scale: belongs to task: embedding",
	} {
		c, err := Parse("t", []byte(least+text))
		if says == "" {
			require.NoError(t, err)
			require.NoError(t, c.Validate(), "once more, as the command line does")
			continue
		}
		require.ErrorContains(t, err, says, text)
		var e *Error
		require.ErrorAs(t, err, &e)
	}
	_, err := Parse("t", []byte("model: m\ndata: {train: x}\ndiffusion: {images: d}\n"))
	require.ErrorContains(t, err, "t:3: diffusion.images: belongs to task: diffusion")
	const renamed = `diffusion.sample_every: unknown key, here it is called "sample_every"`
	_, err = Parse("t", []byte(least+"diffusion: {images: d, sample_every: 2}\n"))
	require.ErrorContains(t, err, "t:3: "+renamed)
	_, err = Parse("t", []byte(least+"img_dir: d\n"), "diffusion.sample_every=2")
	require.ErrorContains(t, err, "--set: "+renamed)
	_, err = Parse("t", []byte("model: m\ndata: {train: x}\nimg_dir: d\n"))
	require.ErrorContains(t, err, `t:3: img_dir: unknown key, here it is called "diffusion.images"`)
}
