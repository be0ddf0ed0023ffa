package config

import "github.com/lorafuse/lorafuse/lora"

// Adapter is PEFT's LoraConfig; the names and defaults are PEFT's.
type Adapter struct {
	R                     int               `yaml:"r" default:"8" range:"[1,65536]" also:"rank,lora_r,lora_rank" doc:"Rank of the adapter."`
	LoraAlpha             float64           `yaml:"lora_alpha" default:"8" range:"[1e-30,1e30]" also:"alpha,scale" doc:"The adapter is scaled by lora_alpha/r."`
	Lycoris               string            `yaml:"lycoris" default:"none" one:"none|loha|lokr" doc:"Method of LyCORIS to train instead of LoRA: loha (Hadamard products) or lokr (Kronecker products). Of the other keys it has r, lora_alpha and their patterns, the keys that choose modules, and modules_to_save; init_lora_weights may be false. none is LoRA."`
	DecomposeBoth         bool              `yaml:"decompose_both" default:"false" doc:"With lycoris: lokr, decompose the left factor too."`
	DecomposeFactor       int               `yaml:"decompose_factor" default:"-1" range:"[-1,65536]" also:"factor,lokr_factor" doc:"With lycoris: lokr, the size of the left factor of each side of a weight, if it divides the side; -1 takes the divisor next to the root."`
	TargetModules         Names             `yaml:"target_modules" also:"targets,lora_target_modules,keys,target_linear" doc:"Modules that get an adapter: a list of names or of ends of names, one regular expression that matches the full name, or all-linear. Without it, what PEFT has for the architecture (mostly q_proj and v_proj)."`
	TargetParameters      Strings           `yaml:"target_parameters" doc:"Parameters of no layer that get an adapter, by their names or ends of them: of routed experts mlp.experts.gate_up_proj and mlp.experts.down_proj, of their router mlp.gate.weight. lora_dropout must be 0 with it."`
	ExcludeModules        Names             `yaml:"exclude_modules" doc:"Modules that get none, by the same rules."`
	LoraDropout           float64           `yaml:"lora_dropout" default:"0" range:"[0,1)" also:"dropout" doc:"Part of the adapter's input that is zeroed while training."`
	Bias                  string            `yaml:"bias" default:"none" one:"none|all|lora_only" doc:"Biases of the model to train: none, all, or the biases of the target modules."`
	ModulesToSave         Strings           `yaml:"modules_to_save" doc:"Modules that are trained and saved in full, such as lm_head."`
	UseRSLora             bool              `yaml:"use_rslora" default:"false" also:"rslora" doc:"Scale by lora_alpha/√r instead."`
	UseDora               bool              `yaml:"use_dora" default:"false" also:"dora" doc:"Train the weights' magnitude apart from their direction (DoRA)."`
	RankPattern           Patterns[int]     `yaml:"rank_pattern" range:"[1,65536]" doc:"Ranks by name or regular expression; the first that matches wins over r."`
	AlphaPattern          Patterns[float64] `yaml:"alpha_pattern" range:"[1e-30,1e30]" doc:"lora_alpha by name or regular expression, likewise."`
	LayersToTransform     Ints              `yaml:"layers_to_transform" range:"[0,16383]" also:"lora_layers,num_layers" doc:"Numbers of the layers that get an adapter, one or a list, from 0; without it all."`
	LayersPattern         Strings           `yaml:"layers_pattern" doc:"Name of the list of layers before the number, such as layers; for layers_to_transform."`
	InitLoraWeights       Init              `yaml:"init_lora_weights" default:"true" doc:"Start of A and B: true (B = 0), gaussian, pissa, pissa_niter_N, olora, or false (B ≠ 0)."`
	FanInFanOut           bool              `yaml:"fan_in_fan_out" default:"false" doc:"The weights are stored [in, out], as in GPT-2."`
	LoraBias              bool              `yaml:"lora_bias" default:"false" doc:"Train a bias on B."`
	TrainableTokenIndices TokenIndices      `yaml:"trainable_token_indices" doc:"Token ids whose embeddings are trained: a list, or lists by the name of the embedding."`
	TaskType              string            `yaml:"task_type" default:"CAUSAL_LM" one:"CAUSAL_LM|FEATURE_EXTRACTION|SEQ_CLS" doc:"PEFT's name of the task, which may be given in place of task."`
}

// LoRA returns the adapter block as the configuration to create and save the adapter with. Properties that depend on
// the model, such as the existence of targets, are checked later.
func (a Adapter) LoRA() *lora.Config {
	c := lora.DefaultConfig()
	switch a.Lycoris {
	case "loha":
		c = lora.LoHa()
	case "lokr":
		c = lora.LoKr(a.DecomposeBoth, a.DecomposeFactor)
	}
	if a.TaskType != "" {
		c.TaskType = &a.TaskType
	}
	c.R, c.LoraAlpha, c.LoraDropout = a.R, a.LoraAlpha, a.LoraDropout
	c.UseRSLoRA, c.UseDoRA, c.LoraBias, c.FanInFanOut = a.UseRSLora, a.UseDora, a.LoraBias, a.FanInFanOut
	c.Bias = a.Bias
	c.InitLoraWeights = lora.InitMethod(a.InitLoraWeights)
	c.TargetModules = lora.ModuleSet{Names: a.TargetModules.List, Pattern: a.TargetModules.Expr}
	c.ExcludeModules = lora.ModuleSet{Names: a.ExcludeModules.List, Pattern: a.ExcludeModules.Expr}
	c.TargetParameters = a.TargetParameters
	c.ModulesToSave, c.LayersPattern, c.LayersToTransform = a.ModulesToSave, a.LayersPattern, a.LayersToTransform
	for _, p := range a.RankPattern {
		c.RankPattern = append(c.RankPattern, lora.RankRule{Key: p.Name, R: p.Value})
	}
	for _, p := range a.AlphaPattern {
		c.AlphaPattern = append(c.AlphaPattern, lora.AlphaRule{Key: p.Name, Alpha: p.Value})
	}
	if len(a.TrainableTokenIndices.IDs) > 0 {
		c.TrainableTokenIndices = []lora.TokenRows{{Tokens: a.TrainableTokenIndices.IDs}}
	}
	for _, m := range a.TrainableTokenIndices.ByModule {
		c.TrainableTokenIndices = append(c.TrainableTokenIndices, lora.TokenRows{Module: m.Module, Tokens: m.IDs})
	}
	return c
}

// unsupported lists keys of PEFT's LoraConfig that have no effect here. They are refused by name, so that nobody
// relies on them.
var unsupported = []string{
	"alora_invocation_tokens", "arrow_config", "auto_mapping", "base_model_name_or_path",
	"corda_config", "ensure_weight_tying", "eva_config", "inference_mode", "kasa_config",
	"layer_replication", "loftq_config", "lora_ga_config", "megatron_config", "megatron_core",
	"monteclora_config", "peft_type", "peft_version", "qalora_group_size", "revision", "runtime_config",
	"use_bdlora", "use_qalora", "velora_config",
}
