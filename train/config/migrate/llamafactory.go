package migrate

import (
	"fmt"
	"slices"
	"strings"
)

func init() {
	keys := map[string]rule{
		"model_name_or_path": to("model"), "adapter_name_or_path": to("init_adapter"), "output_dir": to("output_dir"),
		"lora_rank": to("adapter.r"), "lora_alpha": to("adapter.lora_alpha"), "lora_dropout": to("adapter.lora_dropout"),
		"lora_target":       with(func(c *conversion, v any) { c.out["adapter.target_modules"] = modules(v) }),
		"additional_target": with(func(c *conversion, v any) { c.out["adapter.modules_to_save"] = list(v) }),
		"use_rslora":        to("adapter.use_rslora"), "use_dora": to("adapter.use_dora"),
		"pissa_init": words("adapter.init_lora_weights", map[string]any{"true": "pissa", "false": nil}),
		"pissa_iter": with(func(c *conversion, v any) {
			if n, _ := number(v); c.isTrue("pissa_init") && n > 0 {
				c.out["adapter.init_lora_weights"] = fmt.Sprintf("pissa_niter_%g", n)
			}
		}),
		"stage": with(func(c *conversion, v any) {
			switch v {
			case "sft":
			case "pt":
				c.out["data.train_on"] = "all"
			case "dpo":
				c.out["task"] = "preference"
			default:
				c.drop("stage", fmt.Sprintf("found %v, expected sft, pt or dpo", v))
			}
		}),
		"finetuning_type": with(func(c *conversion, v any) {
			if v != "lora" {
				c.drop("finetuning_type", fmt.Sprintf("found %v, and only LoRA adapters are trained", v))
			}
		}),
		"pref_beta": to("preference.beta"),
		"pref_loss": with(func(c *conversion, v any) {
			if v != "sigmoid" {
				c.drop("pref_loss", fmt.Sprintf("found %v, expected sigmoid", v))
			}
		}),
		"dataset":      with(func(c *conversion, v any) { factoryData(c, "data.train", v) }),
		"eval_dataset": with(func(c *conversion, v any) { factoryData(c, "data.eval", v) }),
		"dataset_dir":  unused, "media_dir": drop("images in conversations are not trained on"),
		"template": with(func(c *conversion, v any) {
			switch v {
			case "llama3", "chatml", "gemma", "mistral":
				c.out["data.chat_template"] = v
			default:
				c.do("data.chat_template", fmt.Sprintf("template is %v: the tokenizer's own is used; compare its rows by lorafuse data show", v))
			}
		}),
		"cutoff_len": to("data.max_length"), "packing": words("data.packing", map[string]any{"true": true, "false": nil}), "neat_packing": words("data.packing", map[string]any{"true": true, "false": nil}), "train_on_prompt": words("data.train_on", map[string]any{"true": "all", "false": nil}),
		"mask_history": drop("all answers of a conversation carry loss"), "max_samples": drop("all rows are used: shorten the file"), "val_size": with(evalPart),
		"quantization_bit":    words("quantize", map[string]any{"4": "nf4", "8": "int8"}),
		"quantization_method": unused, "upcast_layernorm": unused, "double_quantization": unused,
		"neftune_noise_alpha": drop("no noise is added to embeddings"), "loraplus_lr_ratio": drop("A and B have one learning rate"),
		"use_unsloth": unused, "enable_liger_kernel": unused, "shift_attn": drop("attention is exact"), "rope_scaling": drop("the model's own rope is used"),
	}
	trainerKeys(keys)
	register(&source{
		name:  "LLaMA-Factory",
		marks: []string{"model_name_or_path", "finetuning_type", "lora_target", "lora_rank", "stage", "cutoff_len", "template", "dataset", "dataset_dir", "per_device_train_batch_size"},
		defaults: map[string]any{
			"adapter.r": 8, "adapter.lora_dropout": 0.0, "adapter.target_modules": "all-linear", "data.max_length": 2048, "batch_size": 8, "epochs": 3, "learning_rate": 5e-5, "schedule": "linear",
		},
		keys: keys,
		finish: func(c *conversion) {
			if c.in["lora_alpha"] == nil { // the trainer's default
				c.out["adapter.lora_alpha"] = 2 * c.num("lora_rank", 8)
			}
			if c.in["dataset"] == nil {
				c.do("data.train", "the file has no dataset")
			}
			c.warm()
		},
	})
}

// trainerKeys adds the keys of transformers' TrainingArguments.
func trainerKeys(keys map[string]rule) {
	for name, r := range map[string]rule{
		"per_device_train_batch_size": to("batch_size"), "per_device_eval_batch_size": to("eval_batch_size"), "gradient_accumulation_steps": to("gradient_accumulation_steps"),
		"num_train_epochs": to("epochs"), "max_steps": steps("steps"), "learning_rate": to("learning_rate"), "lr_scheduler_type": words("schedule", schedules),
		"warmup_ratio": to("warmup_ratio"), "warmup_steps": to("warmup_steps"), "optim": words("optimizer", optimizers), "weight_decay": to("weight_decay"), "max_grad_norm": to("max_grad_norm"),
		"adam_beta1": beta(0), "adam_beta2": beta(1), "adam_epsilon": to("eps"), "seed": to("seed"), "gradient_checkpointing": to("activation_checkpointing"),
		"disable_gradient_checkpointing": words("activation_checkpointing", map[string]any{"true": false, "false": true}),
		"bf16":                           words("precision", map[string]any{"true": "bf16", "false": nil}), "pure_bf16": words("precision", map[string]any{"true": "bf16", "false": nil}), "fp16": drop("half precision is not used; precision: bf16 or f32"),
		"eval_steps": steps("eval_steps"), "save_steps": steps("save_steps"), "save_total_limit": to("save_limit"), "logging_steps": to("log.steps"),
		"eval_strategy": unused, "evaluation_strategy": unused, "save_strategy": unused, "logging_dir": unused, "do_eval": unused, "save_only_model": unused, "remove_unused_columns": unused,
		"group_by_length":        to("data.length_bucketing"),
		"load_best_model_at_end": to("save_best"), "metric_for_best_model": with(bestMetric), "greater_is_better": unused,
		"report_to": with(reportTo),
		"resume_from_checkpoint": with(func(c *conversion, v any) {
			if s := fmt.Sprint(v); strings.EqualFold(s, "true") {
				c.out["resume"] = "latest"
			} else if !isOff(v) {
				c.out["resume"] = s
			}
		}),
	} {
		if _, given := keys[name]; !given {
			keys[name] = r
		}
	}
}

// bestMetric converts the name of the metric that transformers selects the best model by.
func bestMetric(c *conversion, v any) {
	switch name := strings.TrimPrefix(fmt.Sprint(v), "eval_"); {
	case !c.isTrue("load_best_model_at_end") && isOff(c.in["early_stopping_patience"]), name == "loss":
	case name == "accuracy", name == "mean_token_accuracy":
		c.out["best_metric"] = "eval_accuracy"
	default:
		c.drop("metric_for_best_model", fmt.Sprintf("found %v, expected eval_loss or eval_accuracy", v))
	}
}

// reportTo converts the names of trackers. Those that lorafuse does not have change no result.
func reportTo(c *conversion, v any) {
	if slices.Contains(list(v), "mlflow") {
		c.out["log.mlflow"] = true
		return
	}
	c.unused = append(c.unused, "report_to")
}

// factoryData converts the names of datasets, which LLaMA-Factory finds in dataset_info.json.
func factoryData(c *conversion, key string, v any) {
	var names []any
	for _, name := range list(v) {
		names = append(names, name)
		if !strings.Contains(name, "/") && !strings.Contains(name, ".") {
			c.do(key, fmt.Sprintf("%s is a name of dataset_info.json: give its file_name or hf_hub_url", name))
		}
	}
	c.out[key] = names
}
