package migrate

import (
	"fmt"
	"strings"
)

func init() {
	register(&source{
		name:    "kohya's sd-scripts",
		marks:   []string{"network_module", "network_dim", "network_alpha", "optimizer_type", "train_data_dir", "save_every_n_epochs", "max_data_loader_n_workers", "caption_extension", "unet_lr"},
		flatten: kohyaSections,
		defaults: pictureDefaults(map[string]any{
			"adapter.r": 4, "adapter.lora_alpha": 1, "adapter.target_modules": "all-linear", "steps": 1600, "learning_rate": 2e-6, "schedule": "constant", "diffusion.timesteps": "none",
		}),
		keys: pictureKeys(map[string]rule{
			"network_dim": to("adapter.r"), "network_alpha": to("adapter.lora_alpha"), "network_dropout": to("adapter.lora_dropout"), "network_weights": to("init_adapter"),
			"unet_lr": with(func(c *conversion, v any) {
				if !isOff(v) {
					c.set("learning_rate", v)
				}
			}),
			"text_encoder_lr": noText, "network_train_unet_only": unused, "network_train_text_encoder_only": noText, "network_args": drop("name modules in adapter.target_modules"),
			"network_module": with(func(c *conversion, v any) {
				if !strings.HasPrefix(fmt.Sprint(v), "networks.lora") {
					c.drop("network_module", fmt.Sprintf("found %v, expected networks.lora…", v))
				}
			}),
			"optimizer_type": words("optimizer", optimizers), "use_8bit_adam": words("optimizer", map[string]any{"true": "adamw_8bit", "false": nil}), "optimizer_args": with(kohyaArgs),
			"max_train_epochs": with(func(c *conversion, v any) { // wins over max_train_steps
				if n, ok := number(v); ok && n > 0 {
					delete(c.out, "steps")
					c.set("epochs", v)
					c.done["max_train_steps"] = true
				}
			}),
			"train_data_dir": with(func(c *conversion, v any) {
				c.out["diffusion.images"] = v
				c.do("diffusion.images", "folders inside are called REPEATS_NAME there: name the one with the pictures, and set epochs or steps for the repeats")
			}),
			"conditioning_data_dir": to("diffusion.controls"), "reg_data_dir": drop("put pictures of the class and their captions into the folder"), "dataset_config": drop("set diffusion.images to image_dir of that file"),
			"caption_dropout_rate": to("diffusion.caption_dropout_rate"), "save_every_n_steps": steps("save_steps"), "save_last_n_steps": drop("save_limit counts checkpoints"), "save_every_n_epochs": drop("give save_steps"),
			"timestep_sampling":   words("diffusion.timesteps", map[string]any{"sigma": "none", "uniform": "none", "sigmoid": "sigmoid", "shift": "shift", "flux_shift": "flux_shift", "qwen_shift": "qwen_shift"}),
			"discrete_flow_shift": unused, "sigmoid_scale": to("diffusion.sigmoid_scale"), // see finish
			"weighting_scheme": words("diffusion.weighting", map[string]any{"none": "none", "uniform": "none", "sigma_sqrt": "sigma_sqrt", "cosmap": "cosmap"}), "guidance_scale": to("diffusion.guidance"),
			"fp8_base": words("quantize", map[string]any{"true": "fp8", "false": nil}), "blocks_to_swap": drop("set memory to a number of bytes"),
			"sample_every_n_steps": to("sample_every"), "sample_prompts": to("diffusion.sample_prompts"), "sample_every_n_epochs": drop("give sample_every, in steps"), "sample_sampler": unused,
			"caption_extension": unused, "save_model_as": unused, "save_precision": saved, "output_name": unused, "clip_skip": unused, "cache_latents": unused, "cache_latents_to_disk": unused, "cache_text_encoder_outputs": unused, "cache_text_encoder_outputs_to_disk": unused,
			"enable_bucket": unused, "bucket_no_upscale": unused, "bucket_reso_steps": inCache, "min_bucket_reso": inCache, "max_bucket_reso": inCache, "xformers": unused, "sdpa": unused, "dynamo_backend": unused, "full_bf16": unused, "lr_scheduler_args": drop("give num_cycles or power"),
			"prior_loss_weight": unused, "huber_c": unused, "huber_schedule": unused, "noise_offset_type": unused, "max_token_length": unused, "min_timestep": drop("all noise levels are trained on"),
			"max_timestep": with(func(c *conversion, v any) {
				if n, ok := number(v); ok && n < 1000 {
					c.drop("max_timestep", "all noise levels are trained on")
				}
			}),
			"loss_type": with(func(c *conversion, v any) {
				if v != "l2" {
					c.drop("loss_type", fmt.Sprintf("found %v, expected l2", v))
				}
			}),
			"ae": to("diffusion.vae"), "clip_l": unused, "t5xxl": unused, "epoch": unused, "v_parameterization": drop("flow matching predicts the velocity"), "model_prediction_type": words("task", map[string]any{"raw": "diffusion"}),
		}),
		finish: func(c *conversion) {
			if c.out["diffusion.timesteps"] == "shift" && c.in["discrete_flow_shift"] != nil {
				c.set("diffusion.shift", c.in["discrete_flow_shift"])
			}
			if strings.HasSuffix(c.str("pretrained_model_name_or_path"), ".safetensors") {
				c.do("model", "a single file: name the pipeline in model, and the file in diffusion.transformer")
			}
			c.needsPictures()
		},
	})
}

// kohyaSections removes sections, which have no meaning in these files.
func kohyaSections(file map[string]any) map[string]any {
	flat := map[string]any{}
	for key, v := range file {
		if section, ok := v.(map[string]any); ok {
			for k, inner := range section {
				flat[k] = inner
			}
			continue
		}
		flat[key] = v
	}
	return flat
}

// kohyaArgs converts arguments of the optimizer, such as "weight_decay=0.1".
func kohyaArgs(c *conversion, v any) {
	for _, arg := range listOf(v) {
		name, value, _ := strings.Cut(arg, "=")
		switch strings.TrimSpace(name) {
		case "weight_decay", "eps":
			c.set(strings.TrimSpace(name), strings.TrimSpace(value))
		case "betas":
			var betas []any
			for part := range strings.SplitSeq(strings.Trim(value, "()[] "), ",") {
				n, ok := number(strings.TrimSpace(part))
				if !ok {
					c.drop("optimizer_args", "found "+arg)
					return
				}
				betas = append(betas, n)
			}
			c.out["betas"] = betas
		default:
			c.drop("optimizer_args", "found "+arg+", expected weight_decay, eps or betas")
		}
	}
}

// listOf returns the texts of a list, undivided.
func listOf(v any) (all []string) {
	items, ok := v.([]any)
	if !ok {
		return nil
	}
	for _, x := range items {
		all = append(all, fmt.Sprint(x))
	}
	return all
}
