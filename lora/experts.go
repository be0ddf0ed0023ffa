package lora

import (
	"fmt"
	"slices"
	"strings"
)

// expertNames are what the linear layers of routed experts and their router were
// called in transformers 4, by the type of the model. To PEFT they mean parameters,
// wherever they are named.
var expertNames = map[string][]string{
	"mixtral":   {"gate", "w1", "w2", "w3"},
	"qwen3_moe": {"gate", "gate_proj", "up_proj", "down_proj"},
}

// refuseExperts fails where target_modules takes in routed experts.
func (p *planner) refuseExperts(asked ModuleSet) error {
	names := expertNames[p.model.Type]
	if names == nil {
		return nil
	}
	refuse := func(found string) error {
		return unsupported("target_modules", "%s takes in the routed experts of a model of type %q, which cannot be targeted: name modules of attention, as q_proj, k_proj, v_proj and o_proj", found, p.model.Type)
	}
	if asked.isAllLinear() {
		return refuse(quoted(AllLinear))
	}
	for _, target := range asked.Names {
		if slices.Contains(names, target[strings.LastIndexByte(target, '.')+1:]) {
			return refuse(quoted(target))
		}
	}
	if asked.Pattern == "" {
		return nil
	}
	for _, m := range p.model.Modules {
		layer, ok := strings.CutSuffix(m.Name, "self_attn.q_proj")
		for i := 0; ok && i < len(names); i++ {
			for _, format := range []string{"%smlp.experts.%s", "%smlp.%s"} {
				name := fmt.Sprintf(format, layer, names[i])
				if v, err := p.matcher.judge(name); err != nil || v == matched {
					if err != nil {
						return err
					}
					return refuse(fmt.Sprintf("%s, which matches %q,", asked, name))
				}
			}
		}
	}
	return nil
}
