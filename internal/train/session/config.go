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
		is     func(lora.Module) bool
	}{
		{"attention", o.Attention, isAttention}, {"MLP", o.MLP, isMLP},
		{"unembedding", o.Unembed, func(m lora.Module) bool { return m.OutputEmbedding }},
	} {
		found := false
		for _, m := range modules.Modules {
			if !part.wanted || !part.is(m) {
				continue
			}
			found = true
			to, name := &c.TargetModules.Names, last(m.Name, 1)
			if m.Kind == lora.Parameter {
				to, name = &c.TargetParameters, last(m.Name, 2)
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

func isAttention(m lora.Module) bool {
	return m.Kind == lora.Linear && slices.Contains([]string{"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj"}, last(m.Name, 1))
}

// isMLP reports whether m belongs to an MLP, including routed experts but not their
// router.
func isMLP(m lora.Module) bool {
	if m.Kind == lora.Parameter {
		return strings.HasPrefix(last(m.Name, 2), "experts.")
	}
	return m.Kind == lora.Linear && slices.Contains([]string{"gate_proj", "up_proj", "gate_up_proj", "down_proj", "input_linear", "output_linear"}, last(m.Name, 1))
}

// last returns the last n parts of a module's name.
func last(name string, n int) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-n):], ".")
}
