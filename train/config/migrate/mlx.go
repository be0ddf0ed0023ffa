package migrate

import (
	"fmt"
	"strings"
)

func init() {
	register(&source{
		name:  "mlx-lm",
		marks: []string{"iters", "lora_parameters", "steps_per_eval", "steps_per_report", "fine_tune_type", "val_batches", "test_batches", "adapter_path", "grad_checkpoint", "resume_adapter_file", "num_layers", "lora_layers", "training_mode"},
		defaults: map[string]any{
			"batch_size": 4, "steps": 1000, "learning_rate": 1e-5, "schedule": "constant", "seed": 0, "data.max_length": 2048, "adapter.target_modules": "all-linear",
			"save_steps": 100, "eval_steps": 200, "eval_at_start": true, "max_grad_norm": 0, "output_dir": "adapters", "data.train_on": "all", "model": "mlx-community/Llama-3.2-1B-Instruct-4bit",
		},
		keys: map[string]rule{
			"model": to("model"), "adapter_path": to("output_dir"), "seed": to("seed"), "batch_size": to("batch_size"), "iters": to("steps"), "learning_rate": to("learning_rate"),
			"grad_accumulation_steps": to("gradient_accumulation_steps"), "max_seq_length": to("data.max_length"), "grad_checkpoint": to("activation_checkpointing"), "save_every": to("save_steps"), "steps_per_eval": to("eval_steps"),
			"steps_per_report": to("log.steps"), "mask_prompt": words("data.train_on", map[string]any{"true": "answer", "false": "all"}),
			"val_batches": with(func(c *conversion, v any) {
				if n, ok := number(v); ok && n > 0 {
					c.drop("val_batches", "all evaluation rows are used: shorten the file")
				}
			}),
			"train": unused, "test": drop("evaluate by lorafuse eval --data test.jsonl"), "test_batches": unused,
			"fine_tune_type": with(func(c *conversion, v any) {
				switch v {
				case "lora":
				case "dora":
					c.out["adapter.use_dora"] = true
				default:
					c.drop("fine_tune_type", fmt.Sprintf("found %v, expected lora or dora", v))
				}
			}),
			"training_mode": with(func(c *conversion, v any) {
				switch v {
				case "normal":
				case "dpo":
					c.out["task"] = "preference"
				default:
					c.drop("training_mode", fmt.Sprintf("found %v, expected normal or dpo", v))
				}
			}),
			"optimizer": words("optimizer", map[string]any{"adam": "adamw", "adamw": "adamw"}),
			"data": with(func(c *conversion, v any) {
				dir := strings.TrimSuffix(fmt.Sprint(v), "/")
				if strings.Count(dir, "/") == 1 && !strings.HasPrefix(dir, ".") && !strings.HasPrefix(dir, "/") {
					c.out["data.train"] = []any{dir}
					c.do("data.train", "a dataset of the Hub is "+dir+":train, a folder "+dir+"/train.jsonl")
					return
				}
				c.out["data.train"], c.out["data.eval"] = []any{dir + "/train.jsonl"}, []any{dir + "/valid.jsonl"}
			}),
			"lora_parameters.keys": with(func(c *conversion, v any) { c.out["adapter.target_modules"] = list(v) }),
			"lora_parameters.rank": to("adapter.r"), "lora_parameters.dropout": to("adapter.lora_dropout"),
			"lora_parameters.scale": unused, "lora_parameters.alpha": unused, // see finish
			"num_layers": with(lastLayers), "lora_layers": with(lastLayers),
			"resume_adapter_file":                    drop("an adapter of mlx-lm: convert it by lorafuse adapter convert, and name it in init_adapter"),
			"optimizer_config.adamw.betas":           to("betas"),
			"optimizer_config.adamw.eps":             to("eps"),
			"optimizer_config.adam.betas":            to("betas"),
			"optimizer_config.adam.eps":              to("eps"),
			"optimizer_config.adamw.weight_decay":    to("weight_decay"),
			"optimizer_config.adamw.bias_correction": unused, "optimizer_config.adam.bias_correction": unused, // see finish
			"lr_schedule.name": unused, "lr_schedule.arguments": unused, "lr_schedule.warmup": to("warmup_steps"), "lr_schedule.warmup_init": drop("a warm-up begins at 0"), // see finish
			"hf_dataset.name": drop("name it in data.train as owner/name:split"),
		},
		finish: mlxFinish,
	})
}

// lastLayers reports layers by their number from the end, which depends on the model.
func lastLayers(c *conversion, v any) {
	if n, ok := number(v); ok && n > 0 {
		c.do("adapter.layers_to_transform", fmt.Sprintf("only the last %g layers had adapters: give their numbers, or leave the key out for all layers", n))
	}
}

func mlxFinish(c *conversion) {
	rank := c.num("lora_parameters.rank", 8)
	c.out["adapter.r"] = int(rank)
	switch { // y = x·W + scale·(x·A)·B, and scale = lora_alpha/r here
	case c.in["lora_parameters.scale"] == nil && c.in["lora_parameters.alpha"] != nil: // of old versions
		c.out["adapter.lora_alpha"] = c.num("lora_parameters.alpha", 16)
	default:
		c.out["adapter.lora_alpha"] = c.num("lora_parameters.scale", 20) * rank
	}
	optimizer := strings.ToLower(c.str("optimizer"))
	if optimizer == "adamw" && c.out["weight_decay"] == nil {
		c.out["weight_decay"] = 0.01 // MLX's default
	}
	if !c.isTrue("optimizer_config." + optimizer + ".bias_correction") {
		c.drop("optimizer", "MLX's Adam does not correct the bias of its moments, AdamW here does: the first steps are smaller")
	}
	args, _ := c.in["lr_schedule.arguments"].([]any)
	switch name := c.str("lr_schedule.name"); {
	case name == "":
	case name == "cosine_decay" && len(args) >= 2:
		c.set("learning_rate", args[0])
		c.out["schedule"] = "cosine"
		if end, ok := number(args[1]); ok && int(end) != int(c.num("iters", 1000)) {
			c.do("schedule", fmt.Sprintf("the cosine ended at step %g, here it ends with the run", end))
		}
		if len(args) > 2 && !isOff(args[2]) {
			c.drop("lr_schedule.arguments", fmt.Sprintf("the cosine ended at %v, here it ends at 0", args[2]))
		}
	case name == "linear_schedule" && len(args) >= 2:
		c.set("learning_rate", args[0])
		c.out["schedule"] = "polynomial"
		c.set("lr_end", args[1])
	default:
		c.drop("lr_schedule.name", fmt.Sprintf("found %s, expected cosine_decay or linear_schedule", name))
	}
	if !isOff(c.out["warmup_steps"]) && c.out["schedule"] == "constant" {
		c.out["schedule"] = "constant_with_warmup"
	}
	if c.in["data"] == nil {
		c.do("data.train", "the file has no data")
	}
}
