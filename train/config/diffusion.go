package config

import "path/filepath"

// Diffusion configures the training data and the loss of a diffusion transformer.
type Diffusion struct {
	Images   string `yaml:"images" need:"yes" also:"img_dir,image_dir,train_data_dir,instance_data_dir" doc:"Folder of the pictures, each with its caption in a .txt file of the same name."`
	Controls string `yaml:"controls" also:"control_dir,conditioning_data_dir" doc:"Folder of the source pictures for editing models, with the same file names as in images."`
	Cache    string `yaml:"cache" also:"cache_dir" doc:"Folder of the encoded pictures and captions, which lorafuse data cache writes and training reads. Default: cache in output_dir, as in the Python trainers."`
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

	SampleEvery    int     `yaml:"sample_every" default:"0" range:"[0,2147483647]" also:"validation_steps" doc:"Draw pictures every so many steps and after the last, of the same noise without the adapter and with it, side by side: samples/step-….png in output_dir, and in TensorBoard. 0 draws none."`
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
