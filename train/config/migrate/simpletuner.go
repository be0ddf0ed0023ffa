package migrate

import (
	"fmt"
	"strconv"
	"strings"
)

func init() {
	register(&source{
		name:  "SimpleTuner",
		marks: []string{"model_family", "model_flavour", "data_backend_config", "base_model_precision", "lora_type", "validation_num_inference_steps", "flow_schedule_shift", "validation_resolution"},
		flatten: func(file map[string]any) map[string]any { // older files have keys like --lora_rank
			flat := map[string]any{}
			for key, v := range file {
				flat[strings.TrimLeft(key, "-")] = v
			}
			return flat
		},
		defaults: pictureDefaults(map[string]any{"adapter.r": 16, "adapter.lora_dropout": 0.1, "learning_rate": 4e-7, "output_dir": "simpletuner-results", "diffusion.timesteps": "shift", "diffusion.shift": 3, "max_grad_norm": 2.0}),
		keys: pictureKeys(map[string]rule{
			"lora_rank": to("adapter.r"), "lora_alpha": to("adapter.lora_alpha"), "use_dora": to("adapter.use_dora"), "init_lora": to("init_adapter"),
			"num_train_epochs": with(func(c *conversion, v any) {
				if n, ok := number(v); ok && n > 0 {
					c.set("epochs", v)
				}
			}),
			"optimizer":            words("optimizer", map[string]any{"adamw_bf16": "adamw", "adamw": "adamw", "optimi-adamw": "adamw", "bnb-adamw8bit": "adamw_8bit", "adamw8bit": "adamw_8bit"}),
			"base_model_precision": quanto, "quantize_via": unused, "quantize_activations": drop("activations are not quantized"), "caption_dropout_probability": to("diffusion.caption_dropout_rate"),
			"model_type": with(func(c *conversion, v any) {
				if v != "lora" {
					c.drop("model_type", fmt.Sprintf("found %v, expected lora", v))
				}
			}),
			"lora_type": with(func(c *conversion, v any) {
				if v != "standard" {
					c.drop("lora_type", fmt.Sprintf("found %v, expected standard", v))
				}
			}),
			"flow_schedule_shift": with(func(c *conversion, v any) {
				if isOff(v) {
					delete(c.out, "diffusion.shift")
					c.out["diffusion.timesteps"] = "sigmoid"
					return
				}
				c.set("diffusion.shift", v)
			}),
			"flow_sigmoid_scale": to("diffusion.sigmoid_scale"), "flow_use_uniform_schedule": drop("set diffusion.timesteps: none"), "flow_schedule_auto_shift": drop("set diffusion.timesteps: flux_shift"),
			"data_backend_config": drop("set diffusion.images to instance_data_dir of that file"), "minimum_image_size": inCache, "resolution_type": inCache,
			"validation_prompt": to("diffusion.sample_prompts"), "validation_steps": to("sample_every"), "validation_step_interval": to("sample_every"), "validation_num_inference_steps": to("diffusion.sample_steps"), "validation_guidance": to("diffusion.sample_guidance"),
			"validation_negative_prompt": drop("samples have no negative prompt"), "validation_prompt_library": drop("name prompts in diffusion.sample_prompts"), "validation_guidance_rescale": drop("samples are not rescaled"), "validation_lycoris_strength": unused, "validation_seed": unused, "validation_torch_compile": unused,
			"validation_resolution": with(func(c *conversion, v any) {
				w, h, _ := strings.Cut(fmt.Sprint(v), "x")
				if h == "" {
					h = w
				}
				width, err1 := strconv.Atoi(w)
				height, err2 := strconv.Atoi(h)
				if err1 != nil || err2 != nil {
					c.drop("validation_resolution", fmt.Sprintf("found %v, expected width×height in pixels", v))
					return
				}
				c.out["diffusion.sample_width"], c.out["diffusion.sample_height"] = width, height
			}),
			"model_family": unused, "model_flavour": unused, "vae_batch_size": unused, "compress_disk_cache": unused, "disable_benchmark": unused, "disable_bucket_pruning": unused, "ignore_final_epochs": unused, "skip_file_discovery": unused, "num_eval_images": unused, "aspect_bucket_rounding": inCache,
			"lr_scheduler": words("schedule", schedules),
		}),
		finish: func(c *conversion) {
			if c.in["lora_alpha"] == nil {
				c.out["adapter.lora_alpha"] = c.num("lora_rank", 16)
			}
			if c.in["pretrained_model_name_or_path"] == nil {
				c.do("model", "the family "+c.str("model_family")+" "+c.str("model_flavour")+" has a model of its own there: name it")
			}
			c.needsPictures()
		},
	})
}
