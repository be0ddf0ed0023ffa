package lora

import (
	"fmt"
	"slices"
	"strings"
)

// save fills Saved and Biases.
func (p *placer) save() error {
	c := p.config
	used := make([]bool, len(c.ModulesToSave))
	// PEFT compares the plain end of the name here, without a dot before it,
	// and a module of modules is saved with all that it holds.
	covers := func(entry, name string) bool {
		for i, ch := range name + "." {
			if ch == '.' && strings.HasSuffix(name[:i], entry) {
				return true
			}
		}
		return false
	}
	for _, m := range p.model.Modules {
		if p.tieSaved && p.follows(m) {
			continue
		}
		saved := false
		for i, entry := range c.ModulesToSave {
			if covers(entry, m.Name) {
				saved, used[i] = true, true
			}
		}
		if !saved {
			continue
		}
		switch m.Kind {
		case Other:
			return unsupported("modules_to_save", "%q: nothing is known of its parameters", m.Name)
		case Parameter:
			return unsupported("modules_to_save", "%q is no layer's parameter, which can only have an adapter (target_parameters)", m.Name)
		}
		if _, ok := p.Target(m.Name); ok {
			return configError("modules_to_save", "%q is targeted too, it can be one or the other", m.Name)
		}
		p.Saved = append(p.Saved, SavedModule{Module: m})
	}
	p.tieSavedModules()
	for i, entry := range c.ModulesToSave {
		if !used[i] && !(c.IsClassifier() && slices.Contains(headNames, entry)) {
			p.unused("modules_to_save", entry)
		}
	}
	for _, m := range p.model.Modules {
		_, targeted := p.Target(m.Name)
		isSaved := p.isSaved(m.Name)
		if m.Bias && !isSaved && (c.Bias == "all" || c.Bias == "lora_only" && targeted) {
			p.Biases = append(p.Biases, m)
		}
	}
	return nil
}

// ties warns of weights that two modules no longer share, and finds which base
// weights are saved along with the adapter.
func (p *placer) ties() error {
	for _, m := range p.model.Modules {
		if t, ok := p.Target(m.Name); ok && m.TiedTo != "" && t.MutatesBase() {
			return unsupported("init_lora_weights", "%q takes a part out of the weight of %q, which %q shares: PEFT changes both, lorafuse cannot; leave %s out of target_modules, or begin by another method", t.Init, m.Name, m.TiedTo, m.base())
		}
		if m.TiedTo == "" || p.tieTargets || p.tieSaved {
			continue
		}
		for _, name := range []string{m.Name, m.TiedTo} {
			if _, targeted := p.Target(name); targeted || p.isSaved(name) {
				p.Warnings = append(p.Warnings, fmt.Sprintf("%q is adapted although %q shares its weight with %q: the two will differ, unless ensure_weight_tying is set", name, m.Name, m.TiedTo))
			}
		}
	}
	p.base = p.savedBases()
	for _, m := range p.model.Modules {
		if (m.InputEmbedding || m.OutputEmbedding) && !p.isSaved(m.Name) {
			p.ends = append(p.ends, m)
		}
	}
	return nil
}

// isSaved reports whether modules_to_save covers the module.
func (p *Placement) isSaved(name string) bool {
	return slices.ContainsFunc(p.Saved, func(m SavedModule) bool { return m.Name == name })
}

// embeddingNames are PEFT's names for an embedding and a head.
var embeddingNames = []string{"embed_tokens", "lm_head"}

// savedBases returns the targets whose base weight PEFT saves with the adapter. These
// are the embedding and the head of a model if either is targeted by its usual name,
// unless single tokens are trained.
func (p *placer) savedBases() []Module {
	if len(p.config.TrainableTokenIndices) > 0 {
		return nil
	}
	set := p.config.TargetModules
	named := slices.ContainsFunc(set.Names, func(n string) bool { return slices.Contains(embeddingNames, n) })
	if set.Pattern != "" {
		named = slices.ContainsFunc(p.model.Modules, func(m Module) bool {
			if !slices.Contains(embeddingNames, m.base()) {
				return false
			}
			ok, _, err := p.matcher.target.match(m.Name)
			return ok && err == nil
		})
	}
	if !named {
		return nil
	}
	var bases []Module
	for _, t := range p.Targets {
		if t.InputEmbedding || t.OutputEmbedding {
			bases = append(bases, t.Module)
		}
	}
	return bases
}
