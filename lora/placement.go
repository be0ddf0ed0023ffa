package lora

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Placement is a configuration applied to one model: the targeted modules with rank and
// scale, the other trained parameters, and the tensors of the adapter's file.
type Placement struct {
	Targets []Target         // in the order of the model
	Saved   []SavedModule    // trained whole (modules_to_save)
	Biases  []Module         // modules with a trained bias
	Tokens  []TokenPlacement // embeddings with trained rows
	// Unused lists the names and patterns of the configuration that match nothing. PEFT
	// ignores them; see [Placement.CheckUsed].
	Unused   []Unused
	Warnings []string // warnings that PEFT would give

	config    *Config // as saved
	modelType string
	modules   []Module
	shared    []sharedTensor
	base      []Module // targets whose base weight PEFT also saves
	ends      []Module // input and output embedding
}

// Target is a module with an adapter: y = x Wᵀ + Scale·(drop(x) Aᵀ) Bᵀ. A stack of
// matrices has an adapter for each: A_e are the rows e·Rank and following of A, and
// column k·Count+e of B is column k of B_e.
type Target struct {
	Module
	// Rank is the number of rows of A: r, or the rank of the weight if that is smaller
	// and A is derived from the weight (PiSSA, OLoRA).
	Rank     int
	Alpha    float64
	Scale    float64 // Alpha/r, or Alpha/√r with rank-stabilized LoRA
	Dropout  float64 // of the input of A in training; zero for embeddings
	LoraBias bool    // B has a bias
	Init     InitMethod
	// SharesWith names the embedding whose factors this head shares: its A is the
	// transposed B of the embedding, its B the transposed A. ensure_weight_tying does
	// so for a head that is tied to an embedding. A file contains both.
	SharesWith string

	method method // nil is LoRA
	own    settings
	r      int // as configured
	around int // number of PEFT's wrappers for other parameters of the module around a Parameter's
}

// SavedModule is a module that is trained and saved whole.
type SavedModule struct {
	Module
	// SharesWith names the saved module whose weight this one shares, if any
	// (ensure_weight_tying). A file contains both.
	SharesWith string
}

// Unused is a name or pattern in a configuration that has no effect.
type Unused struct {
	Key  string // of the configuration
	Name string
	Why  string // ", did you mean …?", or the reason for having no effect; empty if the name matches nothing
}

// NewPlacement applies c to a model. It fails with ErrConfig or ErrUnsupported if c is
// invalid or requests something that a module does not support, and with ErrNoTarget if
// no module is targeted.
func NewPlacement(c *Config, model Model) (*Placement, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	for _, m := range model.Modules {
		if err := m.check(); err != nil {
			return nil, err
		}
	}
	names := model.respell()
	p := &placer{Placement: &Placement{config: c.Clone(), modelType: model.Type, modules: model.Modules}, model: model, parents: parents(model.Modules)}
	for _, step := range []func() error{p.saveHead, p.choose, p.target, p.rules, p.save, p.tokens, p.ties, p.resolve} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if names != nil {
		p.restore(names)
	}
	return p.Placement, nil
}

// Config returns the configuration to save with an adapter of this placement. Target
// modules are resolved if they were null or "all-linear"; 20 or more names are
// shortened to endings.
func (p *Placement) Config() *Config { return p.config.Clone() }

// Target returns the target called name.
func (p *Placement) Target(name string) (Target, bool) {
	i := slices.IndexFunc(p.Targets, func(t Target) bool { return t.Name == name })
	if i < 0 {
		return Target{}, false
	}
	return p.Targets[i], true
}

// CheckUsed fails with ErrUnused if a name or a pattern of the configuration has no effect
// on the model. This is a mistake in a training configuration, but acceptable in a
// finished adapter.
func (p *Placement) CheckUsed() error {
	if len(p.Unused) == 0 {
		return nil
	}
	var parts []string
	for _, u := range p.Unused {
		parts = append(parts, u.String())
	}
	return fmt.Errorf("lora: %w: %s", ErrUnused, strings.Join(parts, "; "))
}

// String returns key, name and reason.
func (u Unused) String() string { return fmt.Sprintf("%s: %q%s", u.Key, u.Name, u.Why) }

// placer builds a Placement.
type placer struct {
	*Placement
	model   Model
	parents []string
	matcher *matcher
	// With ensure_weight_tying: the modules that share the weight of the input
	// embedding, and whether they follow it as targets or as saved modules.
	tied                 []Module
	tieTargets, tieSaved bool
	embedding            string // full name of the input embedding
}

// choose resolves target_modules, target_parameters and the effect of
// ensure_weight_tying on them.
func (p *placer) choose() error {
	p.ensureTying()
	if err := p.convertExperts(); err != nil {
		return err
	}
	set, err := resolveTargets(p.config, p.model)
	if err != nil {
		return err
	}
	p.config.TargetModules = set
	p.matcher, err = newMatcher(p.config, set)
	return err
}

// target fills Targets except ranks and scales.
func (p *placer) target() error {
	c := p.config
	set := c.TargetModules
	anyExcluded := false
	for _, name := range p.parents {
		v, err := p.matcher.judge(name)
		if err != nil {
			return err
		}
		anyExcluded = anyExcluded || v == excluded
		if v == matched {
			return unsupported("target_modules", "%s matches %q, which only holds other modules; linear layers and embeddings can be targeted", set, name)
		}
	}
	for _, m := range p.model.Modules {
		if m.Kind == Parameter || p.tieTargets && p.follows(m) {
			continue
		}
		v, err := p.matcher.judge(m.Name)
		if err != nil {
			return err
		}
		anyExcluded = anyExcluded || v == excluded
		if v == matched {
			t, err := p.newTarget(m)
			if err != nil {
				return err
			}
			p.Targets = append(p.Targets, t)
		}
	}
	if err := p.parameters(); err != nil {
		return err
	}
	if len(p.Targets) == 0 {
		return p.noTarget(anyExcluded)
	}
	if err := p.tieHeads(); err != nil {
		return err
	}
	if c.ExcludeModules.IsSet() && !anyExcluded && c.ExcludeModules.Pattern != VisionModules {
		p.Warnings = append(p.Warnings, fmt.Sprintf("exclude_modules %s excludes nothing", c.ExcludeModules))
	}
	p.unusedNames("target_modules", set.Names)
	p.unusedNames("exclude_modules", c.ExcludeModules.Names)
	return nil
}

func (p *placer) newTarget(m Module) (Target, error) {
	c := p.config
	t := Target{
		Module: m, Rank: c.R, Alpha: c.LoraAlpha, Dropout: c.LoraDropout, LoraBias: c.LoraBias, Init: c.InitLoraWeights, method: c.method(), own: c.own,
	}
	if t.Init == "" {
		t.Init = InitDefault
	}
	if err := t.method.accept(c, m); err != nil {
		return t, err
	}
	switch m.Kind {
	case Embedding:
		t.Dropout = 0
	case Linear, Conv1D:
		if c.LoraBias && !m.Bias {
			p.Warnings = append(p.Warnings, fmt.Sprintf("lora_bias: %q has no bias, such an adapter cannot be merged", m.Name))
		}
	}
	return t, nil
}

// noTarget returns the error for a configuration without targets.
func (p *placer) noTarget(anyExcluded bool) error {
	c := p.config
	what := fmt.Sprintf("target_modules %s is not in the model", c.TargetModules)
	switch {
	case len(c.TargetParameters) > 0:
		what = fmt.Sprintf("target_modules %s and target_parameters %s are not in the model", c.TargetModules, list(c.TargetParameters))
	case c.TargetModules.Names != nil && len(c.TargetModules.Names) == 0:
		what = "target_modules is empty"
	case anyExcluded:
		what = fmt.Sprintf("target_modules %s together with exclude_modules and modules_to_save leaves nothing", c.TargetModules)
	}
	if c.LayersToTransform != nil {
		what += fmt.Sprintf(" in layers_to_transform %v", c.LayersToTransform)
	}
	if len(c.LayersPattern) > 0 {
		what += fmt.Sprintf(" of layers_pattern %s", list(c.LayersPattern))
	}
	name := c.TargetModules.Pattern
	if names := append(slices.Clone(c.TargetModules.Names), c.TargetParameters...); len(names) > 0 {
		name = names[0]
	}
	hint := suggest.DidYouMean(name, p.names())
	if hint == "" {
		hint = "; it has " + list(p.targetable())
	}
	return fmt.Errorf("lora: %w: %s%s", ErrNoTarget, what, hint)
}

// names returns the module names that a list may use: full names and last parts.
func (p *placer) names() []string {
	set := map[string]bool{}
	for _, m := range p.model.Modules {
		set[m.base()] = true
	}
	names := slices.Sorted(maps.Keys(set))
	for _, m := range p.model.Modules {
		names = append(names, m.Name)
	}
	return names
}

// targetable returns the last parts of the names of all linear layers.
func (p *placer) targetable() []string {
	set := map[string]bool{}
	for _, m := range p.model.Modules {
		if m.Kind == Linear || m.Kind == Conv1D {
			set[m.base()] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// unusedNames records the names of a list that match no module.
func (p *placer) unusedNames(key string, names []string) {
	for _, name := range names {
		used := slices.ContainsFunc(p.model.Modules, func(m Module) bool { return m.Kind != Parameter && hasSuffix(m.Name, name) }) ||
			slices.ContainsFunc(p.parents, func(parent string) bool { return hasSuffix(parent, name) })
		if !used {
			p.unused(key, name)
		}
	}
}

func (p *placer) unused(key, name string) {
	p.Unused = append(p.Unused, Unused{key, name, suggest.DidYouMean(name, p.names())})
}

// rules sets the rank, alpha and scale of every target.
func (p *placer) rules() error {
	c := p.config
	var rankKeys, alphaKeys []*pattern
	for _, r := range c.RankPattern {
		k, err := suffixMatch(r.Key)
		if err != nil {
			return configError("rank_pattern", "%w", err)
		}
		rankKeys = append(rankKeys, k)
	}
	for _, a := range c.AlphaPattern {
		k, err := suffixMatch(a.Key)
		if err != nil {
			return configError("alpha_pattern", "%w", err)
		}
		alphaKeys = append(alphaKeys, k)
	}
	rankUsed, alphaUsed := make([]bool, len(rankKeys)), make([]bool, len(alphaKeys))
	for i := range p.Targets {
		t := &p.Targets[i]
		r, err := ruleIndex(rankKeys, t.Name)
		if err != nil {
			return configError("rank_pattern", "%w", err)
		}
		if r >= 0 {
			t.Rank, rankUsed[r] = c.RankPattern[r].R, true
		}
		a, err := ruleIndex(alphaKeys, t.Name)
		if err != nil {
			return configError("alpha_pattern", "%w", err)
		}
		if a >= 0 {
			t.Alpha, alphaUsed[a] = c.AlphaPattern[a].Alpha, true
		}
		t.Scale, t.r = t.method.scale(c, *t), t.Rank
		if t.MutatesBase() {
			t.Rank = min(t.Rank, t.In, t.Out)
		}
	}
	if err := p.unusedRules("rank_pattern", rankKeys, rankUsed); err != nil {
		return err
	}
	return p.unusedRules("alpha_pattern", alphaKeys, alphaUsed)
}

// unusedRules records the patterns without effect: only the first pattern that matches
// a module is used, and only targeted modules have a rule.
func (p *placer) unusedRules(key string, patterns []*pattern, used []bool) error {
	for i, rule := range patterns {
		if used[i] {
			continue
		}
		var shadows []string
		for _, t := range p.Targets {
			ok, err := rule.match(t.Name)
			if err != nil {
				return configError(key, "%w", err)
			}
			if first, _ := ruleIndex(patterns, t.Name); ok && !slices.Contains(shadows, patterns[first].source) {
				shadows = append(shadows, patterns[first].source)
			}
		}
		untargeted := slices.ContainsFunc(p.model.Modules, func(m Module) bool {
			ok, err := rule.match(m.Name)
			return ok && err == nil
		})
		switch {
		case len(shadows) > 0:
			p.Unused = append(p.Unused, Unused{key, rule.source, fmt.Sprintf(" is shadowed by %s, which matches the same modules and comes first", list(shadows))})
		case untargeted:
			p.Unused = append(p.Unused, Unused{key, rule.source, " matches no target, only modules that are not adapted"})
		default:
			p.unused(key, rule.source)
		}
	}
	return nil
}

// scale is α/r, or α/√r with rank-stabilized LoRA (arXiv 2312.03732).
func scale(alpha float64, rank int, stabilized bool) float64 {
	if stabilized {
		return alpha / math.Sqrt(float64(rank))
	}
	return alpha / float64(rank)
}

// resolve converts the configuration to the form in which it is saved.
func (p *placer) resolve() error {
	c := p.config
	p.shared = c.method().shared(p.Placement)
	c.InferenceMode = true
	conv1d := slices.ContainsFunc(p.Targets, func(t Target) bool { return t.Kind == Conv1D })
	linear := slices.ContainsFunc(p.Targets, func(t Target) bool { return t.Kind == Linear })
	switch {
	case conv1d && !linear && !c.FanInFanOut:
		p.Warnings = append(p.Warnings, "fan_in_fan_out is set to true: the targets are Conv1D layers")
		c.FanInFanOut = true
	case linear && !conv1d && c.FanInFanOut:
		p.Warnings = append(p.Warnings, "fan_in_fan_out is set to false: the targets are linear layers")
		c.FanInFanOut = false
	}
	if c.TargetModules.Names == nil {
		return nil
	}
	names := slices.Compact(slices.Sorted(slices.Values(c.TargetModules.Names)))
	var others []string
	for _, n := range append(slices.Clone(p.parents), moduleNames(p.model.Modules)...) {
		if !slices.ContainsFunc(names, func(t string) bool { return hasSuffix(n, t) }) {
			others = append(others, n)
		}
	}
	c.TargetModules.Names = append([]string{}, shortestSuffixes(names, others)...)
	return nil
}

func moduleNames(modules []Module) []string {
	var names []string
	for _, m := range modules {
		if m.Kind != Parameter {
			names = append(names, m.Name)
		}
	}
	return names
}
