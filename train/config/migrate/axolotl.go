package migrate

import (
	"fmt"
	"math"
	"strings"
)

func init() {
	register(&source{
		name:  "axolotl",
		marks: []string{"base_model", "micro_batch_size", "sequence_len", "lora_target_linear", "lora_r", "datasets", "sample_packing", "num_epochs", "pad_to_sequence_len", "val_set_size", "train_on_inputs", "load_in_4bit"},
		defaults: map[string]any{
			"adapter.lora_dropout": 0.0, "batch_size": 1, "epochs": 1, "schedule": "cosine", "data.max_length": 512, "data.on_too_long": "drop",
			"warmup_ratio": 0.03, "output_dir": "./model-out",
		},
		keys: map[string]rule{
			"base_model": to("model"), "output_dir": to("output_dir"), "lora_model_dir": to("init_adapter"), "resume_from_checkpoint": to("resume"),
			"lora_r": to("adapter.r"), "lora_alpha": to("adapter.lora_alpha"), "lora_dropout": to("adapter.lora_dropout"),
			"lora_target_modules": with(func(c *conversion, v any) { c.out["adapter.target_modules"] = modules(v) }),
			"lora_target_linear": with(func(c *conversion, v any) {
				if v == true && isOff(c.in["lora_target_modules"]) {
					c.out["adapter.target_modules"] = "all-linear"
				}
			}),
			"lora_modules_to_save": to("adapter.modules_to_save"), "peft_use_rslora": to("adapter.use_rslora"), "peft_use_dora": to("adapter.use_dora"),
			"lora_fan_in_fan_out": to("adapter.fan_in_fan_out"), "peft_layers_to_transform": to("adapter.layers_to_transform"), "peft_init_lora_weights": to("adapter.init_lora_weights"),
			"sequence_len": to("data.max_length"), "sample_packing": to("data.packing"), "group_by_length": to("data.length_bucketing"), "shuffle_merged_datasets": to("data.shuffle"),
			"val_set_size": with(evalPart), "train_on_inputs": words("data.train_on", map[string]any{"true": "all", "false": "answer"}),
			"excess_length_strategy": words("data.on_too_long", map[string]any{"drop": "drop", "truncate": "truncate", "raise": "error"}),
			"micro_batch_size":       to("batch_size"), "eval_batch_size": to("eval_batch_size"), "gradient_accumulation_steps": to("gradient_accumulation_steps"),
			"num_epochs": to("epochs"), "max_steps": to("steps"), "learning_rate": to("learning_rate"), "lr_scheduler": words("schedule", schedules),
			"warmup_steps": to("warmup_steps"), "warmup_ratio": to("warmup_ratio"), "optimizer": words("optimizer", optimizers),
			"weight_decay": to("weight_decay"), "max_grad_norm": to("max_grad_norm"), "adam_beta1": beta(0), "adam_beta2": beta(1), "adam_epsilon": to("eps"),
			"gradient_checkpointing": words("activation_checkpointing", map[string]any{"true": true, "false": false, "offload": true, "unsloth": true}),
			"seed":                   to("seed"), "eval_steps": steps("eval_steps"), "save_steps": steps("save_steps"), "save_total_limit": to("save_limit"), "logging_steps": to("log.steps"),
			"early_stopping_patience": to("early_stopping.patience"), "use_tensorboard": to("log.tensorboard"),
			"load_best_model_at_end": to("save_best"), "metric_for_best_model": with(bestMetric), "greater_is_better": unused, "use_mlflow": to("log.mlflow"),
			"bf16": words("precision", map[string]any{"true": "bf16", "full": "bf16", "auto": "auto", "false": "f32"}), "fp16": drop("half precision is not used; precision: bf16 or f32"),
			"load_in_4bit": words("quantize", map[string]any{"true": "nf4", "false": nil}), "load_in_8bit": words("quantize", map[string]any{"true": "int8", "false": nil}),
			"adapter": with(func(c *conversion, v any) {
				if v != "lora" && v != "qlora" {
					c.drop("adapter", fmt.Sprintf("found %v, and only LoRA adapters are trained", v))
				}
			}),
			"rl": with(func(c *conversion, v any) {
				if v == "dpo" {
					c.out["task"] = "preference"
					return
				}
				c.drop("rl", fmt.Sprintf("found %v, expected dpo (task: preference)", v))
			}),
			"rl_beta": to("preference.beta"), "dpo_beta": to("preference.beta"),
			"datasets": with(func(c *conversion, v any) { axolotlData(c, "data.train", v) }), "test_datasets": with(func(c *conversion, v any) { axolotlData(c, "data.eval", v) }),
			"chat_template": with(chatTemplate), "chat_template_jinja": drop("save the template to a file, and name it in data.chat_template"),
			"evals_per_epoch": with(perEpoch("evals_per_epoch", "eval_steps")), "saves_per_epoch": with(perEpoch("saves_per_epoch", "save_steps")),
			"eval_sample_packing": unused, "pad_to_sequence_len": unused, "eval_table_size": unused, "lora_mlp_kernel": unused, "lora_qkv_kernel": unused, "lora_o_kernel": unused, "plugins": unused, "xformers_attention": unused,
			"special_tokens.pad_token": unused, // rows are not padded
			"batch_size":               drop("rows of a step are batch_size × gradient_accumulation_steps here"),
		},
		finish: func(c *conversion) {
			if total := c.num("batch_size", 0); total > 0 && c.in["gradient_accumulation_steps"] == nil {
				micro := c.num("micro_batch_size", 1)
				if n := total / micro; n == math.Trunc(n) {
					c.out["gradient_accumulation_steps"] = int(n)
					c.undrop("batch_size")
				}
			}
			if c.out["task"] == nil && c.in["datasets"] == nil {
				c.do("data.train", "the file has no datasets")
			}
			c.warm()
		},
	})
}

// undrop removes a key from the dropped ones.
func (c *conversion) undrop(key string) {
	for i, n := range c.dropped {
		if n.Key == key {
			c.dropped = append(c.dropped[:i], c.dropped[i+1:]...)
			return
		}
	}
}

// modules returns target modules: a pattern, or a list of names.
func modules(v any) any {
	if s, ok := v.(string); ok && !strings.Contains(s, ",") {
		switch s {
		case "all", "all-linear":
			return "all-linear"
		}
		if strings.ContainsAny(s, `.*+?()[]|\^$`) {
			return s
		}
	}
	return list(v)
}

// evalPart converts the size of the evaluation set: a part, or a number of rows.
func evalPart(c *conversion, v any) {
	n, ok := number(v)
	switch {
	case !ok || n < 0:
		c.drop("val_size", fmt.Sprintf("found %v, expected a number", v))
	case n > 0 && n < 1:
		c.out["data.eval_fraction"] = v
	case n >= 1:
		c.do("data.eval_fraction", fmt.Sprintf("%g rows are evaluated on: give their part of all rows", n))
	}
}

// steps converts a number of steps; a part of all steps is not one.
func steps(key string) rule {
	return with(func(c *conversion, v any) {
		if n, ok := number(v); ok && n >= 1 {
			c.out[key] = int(n)
		} else if ok && n > 0 {
			c.do(key, fmt.Sprintf("%g of all steps: give a number of steps", n))
		}
	})
}

// perEpoch converts a number of times per epoch.
func perEpoch(name, key string) func(c *conversion, v any) {
	return func(c *conversion, v any) {
		switch n, ok := number(v); {
		case key == "eval_steps" && ok && n <= 1: // once per epoch is our default; 0 never evaluates
		case !isOff(v):
			c.do(key, fmt.Sprintf("%s is %v: give a number of steps", name, v))
		}
	}
}

// chatTemplate converts the name of a template.
func chatTemplate(c *conversion, v any) {
	switch name := fmt.Sprint(v); name {
	case "chatml", "llama3", "gemma", "mistral":
		c.out["data.chat_template"] = name
	case "tokenizer_default", "tokenizer_default_fallback_chatml", "default", "empty":
	default:
		c.drop("chat_template", fmt.Sprintf("%s is not built in; the tokenizer's own is used, or data.chat_template names a file", name))
	}
}

// axolotlData converts a list of datasets.
func axolotlData(c *conversion, key string, v any) {
	var names []any
	for _, d := range mappings(v) {
		path := fmt.Sprint(d["path"])
		if files := list(d["data_files"]); len(files) > 0 {
			for _, f := range files {
				names = append(names, f)
			}
		} else {
			name, split := path, d["split"]
			if d["name"] != nil {
				name += fmt.Sprintf(":%v", d["name"])
				if split == nil {
					split = "train"
				}
			}
			if split != nil && !strings.ContainsAny(path, `\`) && !hasFile(path) {
				name += fmt.Sprintf(":%v", split)
			}
			names = append(names, name)
		}
		for k, column := range map[string]string{"field_messages": "messages", "field_instruction": "instruction", "field_input": "input", "field_output": "output", "field": "text"} {
			if d[k] != nil && fmt.Sprint(d[k]) != column {
				columns, _ := c.out["data.columns"].(map[string]any)
				if columns == nil {
					columns = map[string]any{}
				}
				columns[column] = d[k]
				c.out["data.columns"] = columns
			}
		}
		switch kind := fmt.Sprint(d["type"]); {
		case d["type"] == nil, strings.HasPrefix(kind, "chat_template"), kind == "completion", kind == "sharegpt", strings.HasPrefix(kind, "input_output"):
		case strings.Contains(kind, "."): // chatml.intel, llama3.argilla, …: formats of preferences
		default:
			c.do("data.chat_template", fmt.Sprintf("datasets of %s have type %s, whose prompt is a text of axolotl's; rows are rendered by the chat template here", path, kind))
		}
		for k := range d {
			switch k {
			case "path", "type", "split", "name", "data_files", "ds_type", "field_messages", "field_instruction", "field_input", "field_output", "field", "message_property_mappings":
			case "message_field_role", "message_field_content", "roles", "roles_to_train", "train_on_eos", "shards", "conversation", "chat_template":
				c.drop("datasets."+k, "roles and contents are found by their common names; see lorafuse data show")
			default:
				c.drop("datasets."+k, "lorafuse has no such setting of a dataset")
			}
		}
	}
	c.out[key] = names
}

// hasFile reports whether a name is a path, and not one of the Hub.
func hasFile(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".parquet") || strings.HasSuffix(name, ".csv") || strings.Count(name, "/") != 1
}
