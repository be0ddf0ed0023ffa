package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// idleFamilies are beginnings of keys of experiment trackers and of PyTorch's kernels.
var idleFamilies = []string{"wandb_", "tracker_", "mlflow_", "comet_", "swanlab_", "trackio_", "flash_attn", "torch_compile", "fastsafetensors_"}

// idleKeys are other keys of trainers that change no result here: workers, logs, names of runs, kernels, and seeds of
// random generators that lorafuse does not have.
var idleKeys = []string{
	"num_workers", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor", "dataloader_persistent_workers", "pin_memory", "max_data_loader_n_workers",
	"persistent_data_loader_workers", "preprocessing_num_workers", "dataset_num_proc", "dataset_processes",
	"report_to", "run_name", "log_with", "log_level", "logging_dir", "logging_strategy", "logging_first_step", "logging_nan_inf_filter", "disable_tqdm", "plot_loss",
	"tf32", "allow_tf32", "attn_implementation", "flash_attention", "xformers", "xformers_attention", "enable_xformers_memory_efficient_attention", "memory_efficient_attention", "sdp_attention",
	"expandable_segments", "use_fastsafetensors", "unified_memory", "disable_cpu_offload", "cuda_features", "aarch64_optimizations", "gradient_checkpointing_kwargs",
	"data_seed", "torch_seed", "numpy_seed", "python_seed", "cuda_seed",
	"trust_remote_code", "use_fast_tokenizer", "overwrite_cache", "ddp_timeout", "ddp_find_unused_parameters", "local_rank",
}

// IsIdle reports whether a key of other trainers, without its sections, has no effect here. Files may contain it.
func IsIdle(name string) bool {
	return slices.Contains(idleKeys, name) || slices.ContainsFunc(idleFamilies, func(p string) bool { return strings.HasPrefix(name, p) })
}

// ignore records a key without effect. A file that asks for MLflow gets to know the key that does.
func (c *Config) ignore(place, key string, v *yaml.Node) {
	_, leaf := split(key)
	named := strings.HasPrefix(leaf, "mlflow_") || v.Value == "mlflow" || slices.ContainsFunc(v.Content, func(n *yaml.Node) bool { return n.Value == "mlflow" })
	if named && (leaf == "report_to" || leaf == "log_with" || strings.HasPrefix(leaf, "mlflow_")) {
		key += " (log.mlflow logs to MLflow)"
	}
	c.idle = append(c.idle, place+": "+key)
}

// Idle returns the keys of the file that have no effect here, each after its place.
func (c *Config) Idle() []string { return slices.Clone(c.idle) }
