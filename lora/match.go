package lora

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// matcher is the compiled form of the settings that choose modules, as
// check_target_module_exists in PEFT reads them.
type matcher struct {
	target, exclude moduleMatcher
	saved           []*pattern
	layers          []int // nil is all
	layerPatterns   []*pattern
}

// verdict is the result of a matcher for one module.
type verdict uint8

const (
	unmatched verdict = iota
	excluded
	matched
)

func newMatcher(c *Config, target ModuleSet) (*matcher, error) {
	m := &matcher{}
	var err error
	if m.target, err = newModuleMatcher(target); err != nil {
		return nil, configError("target_modules", "%w", err)
	}
	if m.exclude, err = newModuleMatcher(c.ExcludeModules); err != nil {
		return nil, configError("exclude_modules", "%w", err)
	}
	for _, name := range c.ModulesToSave {
		p, err := savedPattern(name)
		if err != nil {
			return nil, configError("modules_to_save", "%w", err)
		}
		m.saved = append(m.saved, p)
	}
	if len(c.LayersToTransform) == 0 { // PEFT treats an empty list as unset
		return m, nil
	}
	m.layers = c.LayersToTransform
	patterns := c.LayersPattern
	if len(patterns) == 0 {
		// The first numbered part of the name, not the last one, which is an
		// expert in "layers.1.experts.0".
		patterns = []string{`[^.]*`}
	}
	for _, l := range patterns {
		p, err := layerPattern(l)
		if err != nil {
			return nil, configError("layers_pattern", "%w", err)
		}
		m.layerPatterns = append(m.layerPatterns, p)
	}
	return m, nil
}

// judge decides whether the module called name is targeted.
func (m *matcher) judge(name string) (verdict, error) {
	if ok, _, err := m.exclude.match(name); err != nil || ok {
		return excluded, err
	}
	for _, p := range m.saved {
		if ok, err := p.match(name); err != nil || ok {
			return excluded, err
		}
	}
	ok, whole, err := m.target.match(name)
	if err != nil || !ok {
		return unmatched, err
	}
	// The full name of a module selects it regardless of its layer.
	if whole || m.layers == nil {
		return matched, nil
	}
	layer, ok, err := m.layer(name)
	if err != nil || !ok || !slices.Contains(m.layers, layer) {
		return unmatched, err
	}
	return matched, nil
}

// layer finds the number of the layer that holds the module.
func (m *matcher) layer(name string) (int, bool, error) {
	for _, p := range m.layerPatterns {
		digits, ok, err := p.find(name)
		if err != nil {
			return 0, false, err
		}
		if !ok {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return 0, false, configError("layers_pattern", "%q finds %q in %q where a layer number must be", p.source, digits, name)
		}
		return n, true, nil
	}
	return 0, false, nil
}

// moduleMatcher is a compiled ModuleSet. The zero value matches nothing.
type moduleMatcher struct {
	names   map[string]bool
	pattern *pattern
}

func newModuleMatcher(s ModuleSet) (moduleMatcher, error) {
	if s.Pattern != "" {
		p, err := fullMatch(s.Pattern)
		return moduleMatcher{pattern: p}, err
	}
	m := moduleMatcher{names: make(map[string]bool, len(s.Names))}
	for _, n := range s.Names {
		m.names[n] = true
	}
	return m, nil
}

// match reports whether name is one of the set, and whether the set has its
// full name or a pattern rather than an ending of it.
func (m moduleMatcher) match(name string) (ok, whole bool, err error) {
	if m.pattern != nil {
		ok, err := m.pattern.match(name)
		return ok, true, err
	}
	if m.names[name] {
		return true, true, nil
	}
	for i, c := range name {
		if c == '.' && m.names[name[i+1:]] {
			return true, false, nil
		}
	}
	return false, false, nil
}

// ruleIndex returns the index of the first key that matches name, or -1 if none does:
// PEFT's get_pattern_key. A key equal to the name matches regardless of its meaning as
// a pattern.
func ruleIndex(keys []*pattern, name string) (int, error) {
	for i, k := range keys {
		if ok, err := k.match(name); err != nil || ok {
			return i, err
		}
	}
	for i, k := range keys {
		if k.source == name {
			return i, nil
		}
	}
	return -1, nil
}

// VisionModules is the exclude_modules of a new adapter on the text model of a multimodal
// model. The vision parts are no modules here, but PEFT has them, and target_modules could
// match them there.
const VisionModules = `.*(visual|vision_tower|multi_modal_projector)\..*`

// resolveTargets replaces a symbolic choice of modules (nothing, or "all-linear") by
// names or a pattern.
func resolveTargets(c *Config, model Model) (ModuleSet, error) {
	switch {
	case !c.TargetModules.IsSet():
		set, ok := defaultTargets[model.Type]
		if !ok {
			return ModuleSet{}, configError("target_modules", "it must be set: there is no default for models of type %q", model.Type)
		}
		return set, nil
	case c.TargetModules.isAllLinear():
		return ModuleSet{Names: allLinear(c, model.Modules)}, nil
	}
	return c.TargetModules, nil
}

// allLinear returns the names of every linear layer except the output head. For a
// sequence classifier without an output head it leaves out the classifier instead.
func allLinear(c *Config, modules []Module) []string {
	leave := ""
	if i := slices.IndexFunc(modules, func(m Module) bool { return m.OutputEmbedding }); i >= 0 {
		leave = modules[i].Name
	} else if c.IsClassifier() {
		for _, head := range []string{"score", "classifier"} {
			// The head may be a module of modules.
			if slices.ContainsFunc(modules, func(m Module) bool {
				return m.Name == head || strings.HasPrefix(m.Name, head+".")
			}) {
				leave = head
				break
			}
		}
	}
	names := []string{}
	for _, m := range modules {
		if (m.Kind == Linear || m.Kind == Conv1D) && m.Name != leave {
			names = append(names, m.Name)
		}
	}
	return names
}

// shortestSuffixes shortens 20 or more target names to endings that match no other
// module, as PEFT does before saving. For example, "q_proj" replaces one name per
// layer. targets are the names or endings in target_modules, others the names of all
// modules that are not targeted.
func shortestSuffixes(targets, others []string) []string {
	const worthwhile = 20
	if len(targets) < worthwhile {
		return targets
	}
	taken := map[string]bool{}
	for _, name := range others {
		for _, s := range suffixes(name) {
			taken[s] = true
		}
	}
	items := make([][]string, len(targets))
	for i, t := range targets {
		items[i] = suffixes(t)
	}
	slices.SortFunc(items, slices.Compare)
	var required []string
	for _, item := range items {
		name := item[len(item)-1]
		for _, s := range item {
			if taken[s] || slices.Contains(required, s) {
				continue
			}
			covered := slices.ContainsFunc(required, func(r string) bool { return strings.HasSuffix(name, "."+r) })
			if !covered {
				required = append(required, s)
				break
			}
		}
	}
	if len(required) == 0 || len(required) >= len(targets) {
		return targets
	}
	slices.Sort(required)
	return required
}

// suffixes returns the endings of a dotted name, the shortest first.
func suffixes(name string) []string {
	var s []string
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			s = append(s, name[i+1:])
		}
	}
	return append(s, name)
}

// defaultTargets are PEFT's targets if target_modules is not set, by model type.
var defaultTargets = func() map[string]ModuleSet {
	table := map[string]ModuleSet{
		"gemma4": {Pattern: `.*language_model\..*\.(q_proj|v_proj)`},
	}
	for _, row := range []struct{ models, targets string }{
		{"llama llama4 mistral mixtral stablelm gemma gemma2 gemma3_text qwen2 qwen3 bart opt gptj gpt_neo", "q_proj v_proj"},
		{"t5 mt5", "q v"},
		{"gpt2 gpt_bigcode", "c_attn"},
		{"bloom gpt_neox chatglm RefinedWebModel RefinedWeb falcon", "query_key_value"},
		{"blip-2", "q v q_proj v_proj"},
		{"bert roberta xlm-roberta electra layoutlm", "query value"},
		{"deberta-v2", "query_proj value_proj"},
		{"deberta", "in_proj"},
		{"mpt", "Wqkv"},
		{"btlm", "c_proj c_attn"},
		{"codegen", "qkv_proj"},
		{"phi", "q_proj v_proj fc1 fc2"},
		{"nemotron_h", "q_proj k_proj v_proj o_proj"},
		{"rwkv", "key value receptance output"},
		{"rwkv7", "r_proj k_proj v_proj o_proj key value"},
	} {
		for _, m := range strings.Fields(row.models) {
			table[m] = ModuleSet{Names: strings.Fields(row.targets)}
		}
	}
	return table
}()

// DefaultTargets returns the modules that get adapters if target_modules is not set, for models of
// a type. It is nil if there is no default.
func DefaultTargets(modelType string) []string {
	set := defaultTargets[modelType]
	if set.Pattern != "" {
		return []string{set.Pattern}
	}
	return set.Names
}

// describeModule formats a module and its kind for messages.
func describeModule(name string, k Kind) string {
	article := "a"
	if k == Embedding {
		article = "an"
	}
	return fmt.Sprintf("%q, which is %s %s", name, article, k)
}
