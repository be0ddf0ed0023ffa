package migrate

func init() {
	images, controls, batch, caption := to("diffusion.images"), to("diffusion.controls"), to("batch_size"), to("diffusion.caption_dropout_rate")
	register(&source{
		name:  "FlyMyAI's trainer",
		marks: []string{"data_config", "adam8bit", "precompute_text_embeddings", "precompute_image_embeddings", "tracker_project_name"},
		defaults: pictureDefaults(map[string]any{
			"adapter.target_modules": []any{"to_k", "to_q", "to_v", "to_out.0"}, "adapter.init_lora_weights": "gaussian",
		}),
		keys: pictureKeys(map[string]rule{
			"rank": to("adapter.r"), "lora_alpha": to("adapter.lora_alpha"), "quantize": words("quantize", map[string]any{"true": "int8", "false": nil}),
			"adam8bit":            words("optimizer", map[string]any{"true": "adamw_8bit", "false": "adamw"}),
			"data_config.img_dir": images, "img_dir": images, "data_config.control_dir": controls, "control_dir": controls, "data_config.train_batch_size": batch,
			"data_config.caption_dropout_rate": caption, "caption_dropout_rate": caption, "data_config.img_size": inCache, "img_size": inCache,
			"data_config.caption_type": unused, "data_config.random_ratio": drop("pictures are not cropped at random"), "data_config.use_bucketing": unused,
			"precompute_text_embeddings": unused, "precompute_image_embeddings": unused, "save_cache_on_disk": unused, "logging_dir": unused,
			"sample_every": to("sample_every"), "sample_prompts": to("diffusion.sample_prompts"), "sample_width": to("diffusion.sample_width"), "sample_height": to("diffusion.sample_height"), "sample_steps": to("diffusion.sample_steps"),
			"disable_sampling": words("diffusion.draw_samples", map[string]any{"true": false, "false": true}),
		}),
		finish: func(c *conversion) {
			if c.out["adapter.lora_alpha"] == nil { // the trainer has no such key
				c.out["adapter.lora_alpha"] = c.num("rank", 8)
			}
			c.needsPictures()
		},
	})
}
