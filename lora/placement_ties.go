package lora

import (
	"regexp"
	"slices"
	"strings"
)

// ensureTying applies ensure_weight_tying to a model with a tied head: if the embedding
// or the head is adapted or saved, the embedding is, and the head follows it. The rules
// match BaseTuner._check_tied_modules.
func (p *placer) ensureTying() {
	c := p.config
	if !c.EnsureWeightTying {
		return
	}
	if i := slices.IndexFunc(p.model.Modules, func(m Module) bool { return m.InputEmbedding }); i >= 0 {
		p.embedding = p.model.Modules[i].Name
		for _, m := range p.model.Modules {
			if m.TiedTo == p.embedding {
				p.tied = append(p.tied, m)
			}
		}
	}
	if len(p.tied) == 0 {
		p.Warnings = append(p.Warnings, "ensure_weight_tying: no module of the model is tied to the embedding")
		return
	}
	switch {
	case slices.ContainsFunc(c.ModulesToSave, isEmbeddingName):
		p.tieSaved = true
		if !slices.Contains(c.ModulesToSave, p.embedding) {
			c.ModulesToSave = append(c.ModulesToSave, p.embedding)
		}
		c.ModulesToSave = p.withoutTied(c.ModulesToSave)
	case c.TargetModules.Pattern != "":
		full, err := fullMatch(c.TargetModules.Pattern)
		if err != nil {
			return // all-linear, or refused by Validate
		}
		for _, name := range embeddingNames {
			if ok, err := full.match(name); err == nil && ok {
				p.tieTargets = true
			}
		}
		if p.tieTargets {
			c.TargetModules.Pattern = "(?:" + c.TargetModules.Pattern + "|^" + regexp.QuoteMeta(p.embedding) + "$)"
		}
	case slices.ContainsFunc(c.TargetModules.Names, isEmbeddingName):
		p.tieTargets = true
		if !slices.Contains(c.TargetModules.Names, p.embedding) {
			c.TargetModules.Names = append(c.TargetModules.Names, p.embedding)
		}
		c.TargetModules.Names = p.withoutTied(c.TargetModules.Names)
	}
	if !p.tieTargets && !p.tieSaved && len(c.TrainableTokenIndices) == 0 {
		p.Warnings = append(p.Warnings, "ensure_weight_tying: no tied module is in target_modules or modules_to_save")
	}
}

func isEmbeddingName(name string) bool {
	return slices.Contains(embeddingNames, name[strings.LastIndexByte(name, '.')+1:])
}

// withoutTied removes the names of modules that follow the embedding.
func (p *placer) withoutTied(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(p.tied, func(m Module) bool { return hasSuffix(m.Name, name) })
	})
}

// follows reports whether m shares the weight of the embedding.
func (p *placer) follows(m Module) bool {
	return slices.ContainsFunc(p.tied, func(t Module) bool { return t.Name == m.Name })
}

// tieHeads adds the targets that share the factors of the embedding.
func (p *placer) tieHeads() error {
	if !p.tieTargets {
		return nil
	}
	if _, ok := p.Target(p.embedding); !ok {
		return configError("ensure_weight_tying", "the embedding %q is excluded, the modules that are tied to it have nothing to share", p.embedding)
	}
	for _, m := range p.tied {
		t, err := p.newTarget(m)
		if err != nil {
			return err
		}
		t.SharesWith = p.embedding
		p.Targets = append(p.Targets, t)
	}
	return nil
}

// tieSavedModules adds the saved modules that share the saved embedding.
func (p *placer) tieSavedModules() {
	if !p.tieSaved {
		return
	}
	for _, m := range p.tied {
		p.Saved = append(p.Saved, SavedModule{Module: m, SharesWith: p.embedding})
	}
}
