package lora

import (
	"maps"
	"slices"
	"strings"
)

// formerExperts holds the transformers 4 names of the linear layers of routed experts
// and their router, for one model type. In transformers 5 these layers are parameters.
// PEFT still accepts the old names, in target_modules and in files, for parts of the
// parameters.
type formerExperts struct {
	block  string // the part of a layer that is called mlp now
	router string
	joined []string // side by side in gate_up_proj
	down   string
}

var formerByType = map[string]formerExperts{
	"mixtral":   {"block_sparse_moe", "gate", []string{"w1", "w3"}, "w2"},
	"qwen3_moe": {"mlp", "gate", []string{"gate_proj", "up_proj"}, "down_proj"},
}

// The names for target_parameters.
const (
	routerParameter = "gate.weight"
	joinedParameter = "gate_up_proj"
	downParameter   = "down_proj"
)

// parameter returns the target_parameters name of a former linear layer, or nothing.
func (f formerExperts) parameter(target string) (name, parameter string) {
	for _, name := range f.names() {
		if hasSuffix(target, name) {
			switch name {
			case f.router:
				return name, routerParameter
			case f.down:
				return name, downParameter
			}
			return name, joinedParameter
		}
	}
	return "", ""
}

func (f formerExperts) names() []string { return append([]string{f.router, f.down}, f.joined...) }

// convertExperts reads the configuration of a model with routed experts as PEFT does:
// it moves the former linear layers from target_modules to target_parameters. If two of
// them were joined, it doubles rank and alpha. For other models it does nothing.
func (p *placer) convertExperts() error {
	f, ok := formerByType[p.model.Type]
	if !ok {
		return nil
	}
	c := p.config
	if !c.TargetModules.IsSet() && len(c.TargetParameters) == 0 {
		return configError("target_modules", "it must be set, or target_parameters: there is no default for models of type %q", p.model.Type)
	}
	if err := p.namesOf(f); err != nil || c.TargetModules.Pattern != "" {
		return err
	}
	joined := map[string]bool{}
	modules, parameters := []string{}, append([]string{}, c.TargetParameters...)
	for _, target := range c.TargetModules.Names {
		name, parameter := f.parameter(target)
		if parameter == "" {
			modules = append(modules, target)
			continue
		}
		parameters = append(parameters, parameter)
		if parameter == joinedParameter {
			joined[name] = true
		}
	}
	if n := len(joined); n > 0 && n < len(f.joined) {
		found := slices.Sorted(maps.Keys(joined))
		missing := slices.DeleteFunc(slices.Clone(f.joined), func(n string) bool { return joined[n] })
		return configError("target_modules", "%s of the experts is targeted without %s, with which it is one parameter, %s", list(found), list(missing), joinedParameter)
	}
	if len(joined) > 0 {
		key := `.*\.` + joinedParameter
		setRule(&c.RankPattern, RankRule{key, c.R * len(joined)}, func(r RankRule) bool { return r.Key == key })
		setRule(&c.AlphaPattern, AlphaRule{key, c.LoraAlpha * float64(len(joined))}, func(a AlphaRule) bool { return a.Key == key })
	}
	slices.Sort(parameters)
	c.TargetModules.Names, c.TargetParameters = modules, slices.Compact(parameters)
	return c.validateScale()
}

// setRule replaces the rule that is, or adds one.
func setRule[R any, L ~[]R](rules *L, rule R, is func(R) bool) {
	if i := slices.IndexFunc(*rules, is); i >= 0 {
		(*rules)[i] = rule
		return
	}
	*rules = append(*rules, rule)
}

// namesOf rewrites target_modules as a list. It expands all-linear, and replaces an
// expression by the last parts of all names that match. An expression without a match
// is kept.
func (p *placer) namesOf(f formerExperts) error {
	c, names := p.config, map[string]bool{}
	add := func(name string) { names[name[strings.LastIndexByte(name, '.')+1:]] = true }
	switch {
	case c.TargetModules.isAllLinear():
		for _, name := range allLinear(c, p.model.Modules) {
			add(name)
		}
		for _, name := range f.names() {
			names[name] = true
		}
	case c.TargetModules.Pattern != "":
		m, err := newMatcher(c, c.TargetModules)
		if err != nil {
			return err
		}
		for _, name := range p.allNames(f) {
			v, err := m.judge(name)
			if err != nil {
				return err
			}
			if v == matched {
				add(name)
			}
		}
		if len(names) == 0 {
			return nil
		}
	default:
		return nil
	}
	c.TargetModules = ModuleSet{Names: slices.Sorted(maps.Keys(names))}
	return nil
}

// allNames returns the names of all modules and parameters, including the former names
// of experts.
func (p *placer) allNames(f formerExperts) []string {
	names := slices.Clone(p.parents)
	for _, m := range p.model.Modules {
		names = append(names, m.Name)
		if m.Kind != Parameter {
			names = append(names, m.Name+".weight")
			if m.Bias {
				names = append(names, m.Name+".bias")
			}
			continue
		}
		switch m.base() {
		case joinedParameter:
			for _, n := range f.joined {
				names = append(names, m.holder()+"."+n)
			}
		case downParameter:
			names = append(names, m.holder()+"."+f.down)
		}
	}
	return names
}
