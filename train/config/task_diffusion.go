package config

import (
	"path/filepath"
	"strings"
)

// TaskDiffusion is the task of diffusion transformers: pictures.
const TaskDiffusion Task = "diffusion"

var diffusion = definition{
	name:    TaskDiffusion,
	doc:     "a diffusion transformer, on pictures with captions; model is a folder in the layout of diffusers, with model_index.json, or of a transformer alone.",
	section: "For task: diffusion, by flow matching. A step has batch_size times gradient_accumulation_steps pictures; pictures of a micro-batch have the same size, and an incomplete micro-batch counts with its actual number. The loss is the mean squared error of the transformer, averaged over the pictures of a step. Key names of other trainers are accepted too: img_dir, rank (which also sets alpha), max_train_steps and more.",
	rules: []rule{
		{"diffusion.logit_mean", func(c *Config) bool { return c.Diffusion.LogitMean != 0 && c.Diffusion.Timesteps != "logit_normal" },
			"belongs to timesteps: logit_normal"},
		{"diffusion.logit_std", func(c *Config) bool { return c.Diffusion.LogitStd != 1 && c.Diffusion.Timesteps != "logit_normal" },
			"belongs to timesteps: logit_normal"},
		{"diffusion.mode_scale", func(c *Config) bool { return c.Diffusion.ModeScale != 1.29 && c.Diffusion.Timesteps != "mode" },
			"belongs to timesteps: mode"},
		{"diffusion.shift", func(c *Config) bool { return c.Diffusion.Shift != 3 && c.Diffusion.Timesteps != "shift" },
			"belongs to timesteps: shift"},
		{"diffusion.sigmoid_scale", func(c *Config) bool {
			return c.Diffusion.SigmoidScale != 1 && c.Diffusion.Timesteps != "sigmoid" && !strings.HasSuffix(c.Diffusion.Timesteps, "shift")
		}, "belongs to timesteps: sigmoid, shift, flux_shift and qwen_shift"},
		{"diffusion.sample_prompts", func(c *Config) bool {
			return len(c.Diffusion.SamplePrompts) > 0 && c.SampleEvery == 0 && c.Diffusion.DrawSamples
		}, "given without sample_every, the number of steps"},
	},
	samples:  true,
	keep:     func(c *Config) { c.Diffusion.Cache = c.CacheDir() },
	synonyms: diffusionSynonyms,
}

// Diffusion configures the training data and the loss of a diffusion transformer.
type Diffusion struct {
	Images   string `yaml:"images" need:"yes" also:"img_dir,image_dir,train_data_dir,instance_data_dir" doc:"Folder of the pictures, each with its caption in a .txt file of the same name."`
	Controls string `yaml:"controls" also:"control_dir,conditioning_data_dir" doc:"Folder of the source pictures for editing models, with the same file names as in images."`
	Cache    string `yaml:"cache" also:"cache_dir" doc:"Folder of the encoded pictures and captions, which lorafuse data cache writes and training reads. Default: cache in output_dir, as in the Python trainers."`
	SkipBad  bool   `yaml:"skip_bad" default:"false" doc:"Leave out pictures that are unreadable or lack a caption, as data cache --skip-bad does, instead of stopping."`
	VAE      string `yaml:"vae" also:"vae_path,pretrained_vae_model_name_or_path" doc:"Folder of the autoencoder, or its name on the Hub (owner/name[@revision][/folder]), whose config.json defines the latent normalisation. Default: vae of the pipeline. none: cached latents are normalised already."`

	Transformer       string `yaml:"transformer" also:"transformer_path,dit" doc:"Single safetensors file of the transformer, or its name on the Hub (owner/name[@revision]/file.safetensors), instead of the pipeline's transformer; if model is such a file, there are no other components."`
	TransformerConfig string `yaml:"transformer_config" doc:"config.json of diffusers for a transformer in a single file. Default: the one next to the file, else derived from shapes."`

	CaptionDropoutRate float64 `yaml:"caption_dropout_rate" default:"0" range:"[0,1]" also:"caption_dropout" doc:"Fraction of captions that are replaced by the empty prompt of the cache, drawn again for each sample of each step."`
	Timesteps          string  `yaml:"timesteps" default:"none" one:"none|logit_normal|mode|sigmoid|shift|flux_shift|qwen_shift" also:"timestep_sampling,timestep_type,timestep_density,density" doc:"Distribution of noise levels. none: uniform over the scheduler's table (scheduler_config.json, with its static shift). logit_normal and mode: the table with the densities of Stable Diffusion 3. sigmoid: sigmoid(sigmoid_scale · normal). shift, flux_shift and qwen_shift: the same, moved towards noise by the number shift, or by the size of the picture as in FLUX.1's and Qwen-Image's pipelines."`
	LogitMean          float64 `yaml:"logit_mean" default:"0" range:"[-100,100]" doc:"Mean of timesteps: logit_normal."`
	LogitStd           float64 `yaml:"logit_std" default:"1" range:"(0,100]" doc:"Standard deviation of timesteps: logit_normal."`
	ModeScale          float64 `yaml:"mode_scale" default:"1.29" range:"[-100,100]" doc:"Scale of timesteps: mode."`
	SigmoidScale       float64 `yaml:"sigmoid_scale" default:"1" range:"(0,100]" doc:"Scale of timesteps: sigmoid, shift, flux_shift and qwen_shift."`
	Shift              float64 `yaml:"shift" default:"3" range:"(0,1000]" also:"discrete_flow_shift,flow_shift" doc:"Shift s of timesteps: shift: a noise level σ becomes s·σ/(1 + (s - 1)·σ)."`
	Weighting          string  `yaml:"weighting" default:"none" one:"none|sigma_sqrt|cosmap" also:"weighting_scheme,loss_weighting" doc:"Weight of a sample in the loss by its noise level σ: 1, σ⁻², or 2/(π·(1 - 2σ + 2σ²))."`
	Guidance           float64 `yaml:"guidance" default:"1" range:"[0,1000]" also:"guidance_scale" doc:"Guidance that models which were distilled (FLUX.1-dev) are told while they are trained."`

	SamplePrompts  Strings `yaml:"sample_prompts" also:"sample_prompt,validation_prompt,validation_prompts" doc:"Prompts of the samples: texts, which the text encoders of the pipeline encode before the first step, or files of encoded texts (text_embs/….safetensors of a cache). Default: the caption of the first picture."`
	SampleControls Strings `yaml:"sample_controls" also:"sample_control,validation_image" doc:"Pictures that samples are drawn from, for models that edit: one for all of sample_prompts, or one for each. Without it the control of the first picture."`
	SampleWidth    int     `yaml:"sample_width" default:"0" range:"[0,16384]" doc:"Width of samples in pixels; 0 is the width of the first cached picture."`
	SampleHeight   int     `yaml:"sample_height" default:"0" range:"[0,16384]" doc:"Height of samples in pixels; 0 is the height of the first cached picture."`
	SampleSteps    int     `yaml:"sample_steps" default:"0" range:"[0,1000]" also:"num_inference_steps" doc:"Steps from noise to picture; 0 is what the model's pipeline takes."`
	SampleGuidance float64 `yaml:"sample_guidance" default:"0" range:"[0,1000]" also:"sample_guidance_scale" doc:"How much the prompt counts in what is drawn; 0 is what the model's pipeline takes."`
	DrawSamples    bool    `yaml:"draw_samples" default:"true" doc:"false draws no samples, whatever sample_every says."`
}

// CacheDir returns the folder of the cache of pictures and captions.
func (c *Config) CacheDir() string {
	if c.Diffusion.Cache != "" {
		return c.Diffusion.Cache
	}
	return filepath.Join(c.OutputDir, "cache")
}

// The names of keys in other diffusion trainers (diffusers' scripts, FlyMyAI's, kohya's).
var (
	inCache = synonym{help: "pictures have the size that they are cached in: lorafuse data cache --resolution"}
	always  = synonym{only: []string{"true"}, help: "training reads a cache of texts and pictures: lorafuse data cache builds it"}
	eights  = synonym{key: "optimizer", words: map[string]string{"true": "adamw_8bit", "false": "adamw"}}
	images  = synonym{key: "diffusion.images"}
	control = synonym{key: "diffusion.controls"}
	batch   = synonym{key: "batch_size"}
	dropped = synonym{key: "diffusion.caption_dropout_rate"}
	unread  = synonym{help: "nothing reads it here, expected without it"}
	videos  = synonym{help: "videos are not trained on, expected without it"}
	off     = []string{"false"}
	flips   = synonym{only: off, help: "pictures are not flipped: put flipped ones into the folder"}
	repeats = synonym{only: []string{"1"}, help: `pictures are shown as often as "epochs" or "steps" says`}
	trigger = synonym{help: "captions are .txt files: write it into each of them"}
	ema     = synonym{only: off, help: "no mean of weights is kept"}
	prior   = synonym{only: off, help: "put pictures of the class and their captions into the folder"}
	trained = synonym{help: `expected "adapter: {target_modules: [to_k, to_q, to_v, to_out.0]}"`}
	txt     = synonym{only: []string{"txt", ".txt"}, help: "captions are .txt files"}
	single  = synonym{only: []string{"f32", "fp32", "float", "float32"}, help: "adapters are saved in float32"}
)

var diffusionSynonyms = map[string]synonym{
	"pretrained_model_name_or_path": {key: "model"},
	"img_dir":                       images, "data_config.img_dir": images,
	"control_dir": control, "data_config.control_dir": control,
	"train_batch_size": batch, "data_config.train_batch_size": batch,
	"caption_dropout_rate": dropped, "data_config.caption_dropout_rate": dropped,
	"max_train_steps": {key: "steps"}, "num_train_epochs": {key: "epochs"},
	"lr_scheduler": {key: "schedule"}, "lr_warmup_steps": {key: "warmup_steps"},
	"adam_beta1": {key: "betas"}, "adam_beta2": {key: "betas"}, // see put
	"adam_weight_decay": {key: "weight_decay"}, "adam_epsilon": {key: "eps"},
	"mixed_precision":     {key: "precision", words: map[string]string{"no": "f32", "bf16": "bf16"}},
	"checkpointing_steps": {key: "save_steps"}, "checkpoints_total_limit": {key: "save_limit"},
	"resume_from_checkpoint": {key: "resume"},
	"rank":                   {key: "adapter.r"}, "lora_alpha": {key: "adapter.lora_alpha"},
	"quantize": {key: "quantize", words: map[string]string{"true": "int8", "false": "none", "int8": "int8", "nf4": "nf4", "fp8": "fp8", "qfloat8": "fp8", "none": "none"}},
	"adam8bit": eights, "use_8bit_adam": eights,
	"gradient_checkpointing":         {key: "activation_checkpointing"},
	"disable_gradient_checkpointing": {key: "activation_checkpointing", words: map[string]string{"true": "false", "false": "true"}},
	"report_to":                      {key: "log.tensorboard", words: map[string]string{"tensorboard": "true", "none": "false"}, free: true},
	"sample_prompts":                 {key: "diffusion.sample_prompts"},
	"sample_width":                   {key: "diffusion.sample_width"},
	"sample_height":                  {key: "diffusion.sample_height"},
	"sample_steps":                   {key: "diffusion.sample_steps"},
	"disable_sampling":               {key: "diffusion.draw_samples", words: map[string]string{"true": "false", "false": "true"}},
	"weighting_scheme":               {help: `expected "diffusion.timesteps" for a density, "diffusion.weighting" for a weight of the loss`},

	"precompute_text_embeddings": always, "precompute_image_embeddings": always, "save_cache_on_disk": always,
	"cache_latents": always, "cache_latents_to_disk": always,
	"cache_text_encoder_outputs": always, "cache_text_encoder_outputs_to_disk": always, "cache_text_embeddings": always,
	"freeze_text_encoder":       {only: []string{"true"}, help: "encoders of texts are not trained"},
	"train_text_encoder":        {only: off, help: "encoders of texts are not trained"},
	"data_config.use_bucketing": {only: []string{"true"}, help: "batches are of one size"},
	"data_config.caption_type":  {only: []string{"txt"}, help: "captions are .txt files"},
	"data_config.random_ratio":  {only: []string{"false"}, help: "pictures are not cropped at random"},
	"data_config.img_size":      inCache, "img_size": inCache,
	"data_config.video_dir": videos, "data_config.video_size": videos, "data_config.num_frames": videos,
	"double_blocks":     unread,
	"timestep_sampling": {key: "diffusion.timesteps"}, "discrete_flow_shift": {key: "diffusion.shift"},
	"logit_mean": {key: "diffusion.logit_mean"}, "logit_std": {key: "diffusion.logit_std"}, "mode_scale": {key: "diffusion.mode_scale"},
	"sigmoid_scale": {key: "diffusion.sigmoid_scale"}, "guidance_scale": {key: "diffusion.guidance"},
	"validation_prompt": {key: "diffusion.sample_prompts"}, "validation_steps": {key: "sample_every"},
	"lr_scheduler_num_cycles": {key: "num_cycles"}, "lr_num_cycles": {key: "num_cycles"}, "lr_scheduler_power": {key: "power"}, "lr_power": {key: "power"},
	"network_dim": {key: "adapter.r"}, "network_alpha": {key: "adapter.lora_alpha"}, "lora_dropout": {key: "adapter.lora_dropout"},
	"save_every_n_steps": {key: "save_steps"}, "logging_steps": {key: "log.steps"},
	"optimizer_type": {key: "optimizer", words: map[string]string{"AdamW": "adamw", "adamw": "adamw", "AdamW8bit": "adamw_8bit", "adamw8bit": "adamw_8bit"}},
	"fp8_base":       {key: "quantize", words: map[string]string{"true": "fp8", "false": "none"}},

	"resolution": inCache, "enable_bucket": {only: []string{"true"}, help: "batches are of one size"},
	"bucket_reso_steps": {help: "pictures have the size that they are cached in: lorafuse data cache --multiple"},
	"center_crop":       {only: []string{"true"}, help: "pictures are cut in the middle"},
	"random_flip":       flips, "flip_aug": flips, "repeats": repeats, "num_repeats": repeats,
	"trigger_word": trigger, "instance_prompt": trigger, "shuffle_caption": {only: off, help: "captions are encoded once, as they are"},
	"caption_extension": txt, "caption_ext": txt,
	"use_ema": ema, "ema_decay": {help: "no mean of weights is kept, expected without it"},
	"with_prior_preservation": prior, "class_data_dir": prior, "class_prompt": prior,
	"layers": trained, "lora_layers": trained, "save_precision": single, "save_dtype": single,
	"max_sequence_length": {help: "texts have the length that they are cached in, expected without it"},
	"blocks_to_swap":      {only: []string{"0"}, help: `expected "memory", in bytes, or "activation_checkpointing" or "quantize"`},
	"validation_epochs":   {help: `expected "sample_every", in steps`}, "save_every_n_epochs": {help: `expected "save_steps"`},
	"noise_offset": unread, "min_snr_gamma": unread, "snr_gamma": unread, "network_module": unread, "unet_lr": {help: `expected "learning_rate"`},
	"push_to_hub": {only: off, help: "nothing is sent to the hub"}, "output_name": unread,
	"disable_quantization": {help: `expected "quantize: none"`},
	"memory_fraction":      {help: `expected "memory" or "memory_limit", in bytes`},
}
