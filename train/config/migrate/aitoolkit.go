package migrate

import (
	"fmt"
	"path"
	"strings"
)

func init() {
	register(&source{
		name:    "ai-toolkit",
		marks:   []string{"network.linear", "network.type", "training_folder", "datasets", "train.noise_scheduler", "model.name_or_path"},
		flatten: toolkitProcess,
		defaults: pictureDefaults(map[string]any{
			"adapter.target_modules": "all-linear", "adapter.lora_alpha": 1, "steps": 1000, "learning_rate": 1e-6, "schedule": "constant", "diffusion.timesteps": "sigmoid", "output_dir": "output",
		}),
		keys: map[string]rule{
			"type": unused, "training_folder": unused, "name": unused, // see finish
			"trigger_word": captions, "network.linear": to("adapter.r"), "network.rank": to("adapter.r"), "network.linear_alpha": to("adapter.lora_alpha"), "network.alpha": to("adapter.lora_alpha"), "network.dropout": to("adapter.lora_dropout"),
			"network.type": with(func(c *conversion, v any) {
				if v != "lora" {
					c.drop("network.type", fmt.Sprintf("found %v, expected lora", v))
				}
			}),
			"network.conv": drop("layers of convolutions have no adapters"), "network.conv_alpha": unused, "network.network_kwargs.only_if_contains": drop("name the modules in adapter.target_modules"), "network.network_kwargs.ignore_if_contains": drop("name the modules in adapter.exclude_modules"),
			"save.dtype": saved, "save.save_format": unused, "save.save_every": steps("save_steps"), "save.max_step_saves_to_keep": to("save_limit"), "save.push_to_hub": unused,
			"train.batch_size": to("batch_size"), "train.steps": to("steps"), "train.lr": to("learning_rate"), "train.gradient_accumulation": to("gradient_accumulation_steps"), "train.gradient_accumulation_steps": to("gradient_accumulation_steps"),
			"train.gradient_checkpointing": to("activation_checkpointing"), "train.optimizer": words("optimizer", optimizers), "train.optimizer_params.weight_decay": to("weight_decay"), "train.optimizer_params.betas": to("betas"), "train.optimizer_params.eps": to("eps"),
			"train.lr_scheduler": words("schedule", schedules), "train.max_grad_norm": to("max_grad_norm"), "train.dtype": mixed, "train.seed": to("seed"),
			"train.timestep_type": words("diffusion.timesteps", map[string]any{"sigmoid": "sigmoid", "linear": "none", "flux_shift": "flux_shift", "shift": "flux_shift"}),
			"train.train_unet":    unused, "train.train_text_encoder": noText, "train.cache_text_embeddings": unused, "train.unload_text_encoder": unused, "train.ema_config.use_ema": noMean, "train.ema_config.ema_decay": unused,
			"train.noise_scheduler":   words("task", map[string]any{"flowmatch": "diffusion"}),
			"train.skip_first_sample": unused, "train.force_first_sample": unused, "train.disable_sampling": words("diffusion.draw_samples", map[string]any{"true": false, "false": true}),
			"model.name_or_path": to("model"), "model.quantize": quanto, "model.qtype": unused, "model.arch": unused, "model.is_flux": unused, "model.low_vram": unused, "model.quantize_te": unused, "model.qtype_te": unused,
			"sample.sample_every": to("sample_every"), "sample.width": to("diffusion.sample_width"), "sample.height": to("diffusion.sample_height"), "sample.sample_steps": to("diffusion.sample_steps"), "sample.guidance_scale": to("diffusion.sample_guidance"),
			"sample.prompts": to("diffusion.sample_prompts"), "sample.neg": drop("samples have no negative prompt"), "sample.sampler": unused, "sample.seed": unused, "sample.walk_seed": unused,
			"sample.samples": with(func(c *conversion, v any) {
				var prompts []any
				for _, s := range mappings(v) {
					prompts = append(prompts, s["prompt"])
				}
				c.out["diffusion.sample_prompts"] = prompts
			}),
			"datasets": with(toolkitData),
		},
		finish: func(c *conversion) {
			folder := c.str("training_folder")
			if folder == "" {
				folder = "output"
			}
			c.out["output_dir"] = path.Join(folder, c.str("name"))
			if qtype := strings.ToLower(c.str("model.qtype")); c.isTrue("model.quantize") && qtype != "" && qtype != "qfloat8" && qtype != "float8" {
				if ours, ok := quanto.words[qtype]; ok {
					c.out["quantize"] = ours
				} else {
					c.drop("model.qtype", "found "+qtype+", expected qfloat8, float8 or qint8; quantize: fp8 is set")
				}
			}
			c.needsPictures()
		},
	})
}

// toolkitProcess returns the first process of a job with the name of the job.
func toolkitProcess(file map[string]any) map[string]any {
	job, _ := file["config"].(map[string]any)
	list, _ := job["process"].([]any)
	if len(list) == 0 {
		return nil
	}
	process, _ := list[0].(map[string]any)
	flat := map[string]any{}
	for key, v := range process {
		flat[key] = v
	}
	if len(list) > 1 {
		flat["process"] = fmt.Sprintf("%d processes, of which the first is converted", len(list))
	}
	if job["name"] != nil {
		flat["name"] = job["name"]
	}
	return flat
}

// toolkitData converts the first folder of pictures.
func toolkitData(c *conversion, v any) {
	for i, d := range mappings(v) {
		if i > 0 {
			c.drop(fmt.Sprintf("datasets[%d]", i), "pictures are in one folder: move those of "+fmt.Sprint(d["folder_path"])+" there")
			continue
		}
		for key, value := range d {
			switch key {
			case "folder_path":
				c.out["diffusion.images"] = value
			case "control_path":
				if value != nil {
					c.out["diffusion.controls"] = value
				}
			case "caption_dropout_rate":
				c.set("diffusion.caption_dropout_rate", value)
			case "resolution":
				c.do("diffusion.cache", fmt.Sprintf("resolution %v is an option of lorafuse data cache, which takes one: --resolution", value))
			case "caption_ext", "cache_latents", "cache_latents_to_disk", "is_reg", "network_weight":
			default:
				if !isOff(value) {
					c.drop("datasets."+key, "lorafuse has no such setting of a folder")
				}
			}
		}
	}
}
