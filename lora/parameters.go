package lora

import (
	"fmt"
	"slices"
)

// parameters adds the targets named by target_parameters: full names of parameters, or
// their ends after a dot. layers_to_transform and exclude_modules do not apply.
func (p *placer) parameters() error {
	used := make([]bool, len(p.config.TargetParameters))
	matches := func(parameter string) (some bool) {
		for i, name := range p.config.TargetParameters {
			if hasSuffix(parameter, name) {
				used[i], some = true, true
			}
		}
		return some
	}
	for _, m := range p.model.Modules {
		switch {
		case m.Kind != Parameter:
			for _, name := range m.parameters() {
				if matches(name) {
					return unsupported("target_parameters", "%q is of %s; parameters that are no layer's can be targeted, as those of experts, and layers by target_modules", name, describeModule(m.Name, m.Kind))
				}
			}
		case matches(m.Name):
			t, err := p.newParameter(m)
			if err != nil {
				return err
			}
			p.Targets = append(p.Targets, t)
		}
	}
	p.wrap()
	for i, name := range p.config.TargetParameters {
		if !used[i] {
			p.unused("target_parameters", name)
		}
	}
	return nil
}

// parameters returns the names of the module's parameters.
func (m Module) parameters() []string {
	names := []string{m.Name + ".weight"}
	if m.Bias {
		names = append(names, m.Name+".bias")
	}
	return names
}

func (p *placer) newParameter(m Module) (Target, error) {
	c := p.config
	t := Target{Module: m, Rank: c.R, Alpha: c.LoraAlpha, Init: c.InitLoraWeights, method: c.method()}
	if t.Init == "" {
		t.Init = InitDefault
	}
	kind, _, err := t.Init.parse()
	if err != nil {
		return t, err
	}
	linear := slices.ContainsFunc(p.Targets, func(t Target) bool { return t.Kind == Linear })
	for _, x := range []struct {
		key   string
		set   bool
		found any
	}{
		{"lora_dropout", c.LoraDropout != 0, c.LoraDropout},
		{"lora_bias", c.LoraBias, true},
		{"fan_in_fan_out", c.FanInFanOut && !linear, true}, // else PEFT has corrected it by now
		{"init_lora_weights", kind == InitPiSSA || kind == InitOLoRA, fmt.Sprintf("%q", t.Init)},
	} {
		if x.set {
			return t, unsupported(x.key, "found %v, which the adapter of the parameter %q cannot have", x.found, m.Name)
		}
	}
	return t, t.method.accept(c, m)
}

// wrap counts the wrappers around that of each parameter: PEFT has one for each
// parameter of a module, in one another, the last one outermost.
func (p *placer) wrap() {
	around := map[string]int{}
	for i := len(p.Targets) - 1; i >= 0; i-- {
		if t := &p.Targets[i]; t.Kind == Parameter {
			t.around = around[t.holder()]
			around[t.holder()]++
		}
	}
}
