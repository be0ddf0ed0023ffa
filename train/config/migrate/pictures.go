package migrate

import (
	"maps"
)

// Rules that several trainers of pictures share.
var (
	inCache  = drop("pictures have the size that they are cached in: lorafuse data cache --resolution")
	captions = drop("captions are .txt files: write it into each of them")
	noMean   = drop("no mean of weights is kept")
	noText   = drop("encoders of texts are not trained")
	saved    = unused // adapters are saved in float32
	quanto   = words("quantize", map[string]any{"true": "fp8", "false": nil, "no_change": nil, "none": nil, "qfloat8": "fp8", "float8": "fp8", "fp8-quanto": "fp8", "fp8-torchao": "fp8", "int8-quanto": "int8", "int8-torchao": "int8", "qint8": "int8", "nf4-bnb": "nf4"})
	mixed    = words("precision", map[string]any{"no": "f32", "fp32": "f32", "float32": "f32", "bf16": "bf16"})
)

// pictureKeys returns the keys that mean the same in the trainers of pictures, with more of one.
func pictureKeys(more map[string]rule) map[string]rule {
	keys := map[string]rule{
		"pretrained_model_name_or_path": to("model"), "output_dir": to("output_dir"), "learning_rate": to("learning_rate"), "lr_warmup_steps": steps("warmup_steps"),
		"lr_scheduler": words("schedule", schedules), "lr_scheduler_num_cycles": to("num_cycles"), "lr_scheduler_power": to("power"), "lr_num_cycles": to("num_cycles"), "lr_power": to("power"),
		"train_batch_size": to("batch_size"), "gradient_accumulation_steps": to("gradient_accumulation_steps"), "max_train_steps": steps("steps"), "max_grad_norm": to("max_grad_norm"), "seed": to("seed"),
		"gradient_checkpointing": to("activation_checkpointing"), "mixed_precision": mixed, "resume_from_checkpoint": to("resume"),
		"adam_beta1": beta(0), "adam_beta2": beta(1), "adam_weight_decay": to("weight_decay"), "adam_epsilon": to("eps"),
		"checkpointing_steps": steps("save_steps"), "checkpoints_total_limit": to("save_limit"), "use_ema": noMean, "lora_dropout": to("adapter.lora_dropout"), "resolution": inCache,
	}
	maps.Copy(keys, more)
	return keys
}

// pictureDefaults returns the defaults of trainers of pictures with torch's AdamW, which decays weights.
func pictureDefaults(more map[string]any) map[string]any {
	all := map[string]any{"task": "diffusion", "batch_size": 1, "adapter.lora_dropout": 0.0, "max_grad_norm": 1.0, "weight_decay": 0.01}
	maps.Copy(all, more)
	return all
}

// needsPictures reports a file without a folder of pictures.
func (c *conversion) needsPictures() {
	if c.out["diffusion.images"] == nil {
		c.do("diffusion.images", "give the folder of the pictures and their captions")
	}
	c.warm()
}
