package session

import (
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/lora"
)

// defaultAlpha is the alpha of adapters of every rank, as Tinker's have it.
const defaultAlpha = 32

// config returns the configuration of the adapter for options, and fills in their
// defaults.
func (o *Options) config(modules lora.Model, l limits) (*lora.Config, error) {
	if o.Alpha == 0 {
		o.Alpha = defaultAlpha
	}
	switch {
	case o.Rank < 1 || o.Rank > math.MaxUint16:
		return nil, invalid("rank", "found %d, expected 1 to %d", o.Rank, math.MaxUint16)
	case !(o.Alpha > 0) || math.IsInf(o.Alpha, 1):
		return nil, invalid("alpha", "found %v, expected a finite number above 0", o.Alpha)
	case o.MaxTokens < 0 || o.MaxTokens > l.tokens:
		return nil, invalid("max tokens", "found %d, expected 1 to %d, as many as the model takes, or 0 for that", o.MaxTokens, l.tokens)
	case o.Memory < 0:
		return nil, invalid("memory", "found %d, expected a number of bytes, or 0 for what the device has", o.Memory)
	case !o.Attention && !o.MLP && !o.Unembed:
		return nil, invalid("options", "nothing is trained, expected attention, MLP or unembedding")
	}
	if err := o.Optimizer.Check(); err != nil {
		return nil, invalid("options", "%w", err)
	}
	c := lora.DefaultConfig()
	task := "CAUSAL_LM"
	c.TaskType, c.R, c.LoraAlpha = &task, o.Rank, o.Alpha
	if o.Name != "" {
		c.BaseModelNameOrPath = &o.Name
	}
	c.TargetModules.Names = []string{}
	for _, part := range []struct {
		name   string
		wanted bool
		target func(lora.Module) string // its name as a target, or ""
	}{
		{"attention", o.Attention, attentionTarget}, {"MLP", o.MLP, mlpTarget}, {"unembedding", o.Unembed, headTarget},
	} {
		found := false
		for _, m := range modules.Modules {
			name := part.target(m)
			if !part.wanted || name == "" {
				continue
			}
			found = true
			to := &c.TargetModules.Names
			if m.Kind == lora.Parameter {
				to = &c.TargetParameters
			}
			if !slices.Contains(*to, name) {
				*to = append(*to, name)
			}
		}
		if part.wanted && !found {
			return nil, invalid("options", "the model has no modules of %s that are known", part.name)
		}
	}
	return c, nil
}

// These are the names of linear layers in attention and in MLPs of all decoders, with the name of the part if both have
// such a layer.
var (
	attentionNames = []string{"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "query_key_value", "attention.dense", "c_attn", "attn.c_proj"}
	mlpNames       = []string{"gate_proj", "up_proj", "gate_up_proj", "down_proj", "input_linear", "output_linear", "dense_h_to_4h", "dense_4h_to_h", "c_fc", "mlp.c_proj"}
)

func attentionTarget(m lora.Module) string { return linearTarget(m, attentionNames) }

// mlpTarget also returns the name of the parameter of routed experts, but not that of their router.
func mlpTarget(m lora.Module) string {
	if m.Kind != lora.Parameter {
		return linearTarget(m, mlpNames)
	}
	if name := last(m.Name, 2); strings.HasPrefix(name, "experts.") {
		return name
	}
	return ""
}

func headTarget(m lora.Module) string {
	if m.OutputEmbedding {
		return last(m.Name, 1)
	}
	return ""
}

// linearTarget returns the name that a linear layer ends with.
func linearTarget(m lora.Module, names []string) string {
	i := slices.IndexFunc(names, func(name string) bool { return m.Name == name || strings.HasSuffix(m.Name, "."+name) })
	if m.Kind != lora.Linear && m.Kind != lora.Conv1D || i < 0 {
		return ""
	}
	return names[i]
}

// last returns the last n parts of a module's name.
func last(name string, n int) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-n):], ".")
}
