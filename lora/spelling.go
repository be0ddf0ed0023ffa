package lora

import (
	"slices"
	"strings"
)

// spellings are the names that transformers 4 gave to the text model within a multimodal model.
// With some of them, the head is in the text model too.
var spellings = []struct{ current, former, head string }{
	{"model.language_model.", "language_model.model.", "language_model.lm_head"},
	{"model.language_model.", "model.", "lm_head"},
	{"language_model.", "", "lm_head"}, // of a model without a head
}

// SpelledAs returns the model with the module names that the keys of an adapter have, in
// whichever version of transformers it was trained. Placements in it have the names of m, but the
// configuration is read, and the keys are spelled, with the names of the adapter.
func (m Model) SpelledAs(keys []string) Model {
	has := func(module string) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, keyPrefix+module+".") })
	}
	for _, s := range spellings {
		inText := func(x Module) bool { return strings.HasPrefix(x.Name, s.current) }
		if !slices.ContainsFunc(m.Modules, inText) || has(strings.TrimSuffix(s.current, ".")) {
			continue
		}
		spelled := func(name string) string {
			if rest, ok := strings.CutPrefix(name, s.current); ok {
				return s.former + rest
			}
			if name == "lm_head" {
				return s.head
			}
			return name
		}
		if !slices.ContainsFunc(m.Modules, func(x Module) bool { return spelled(x.Name) != x.Name && has(spelled(x.Name)) }) {
			continue
		}
		m.Modules = slices.Clone(m.Modules)
		for i, x := range m.Modules {
			m.Modules[i].spelled = spelled(x.Name)
		}
		return m
	}
	return m
}

// inFiles returns the name of the module in adapter files.
func (m Module) inFiles() string {
	if m.spelled != "" {
		return m.spelled
	}
	return m.Name
}

// inFiles returns the name in adapter files of the module called name.
func (p *Placement) inFiles(name string) string {
	for _, m := range p.modules {
		if m.Name == name {
			return m.inFiles()
		}
	}
	return name
}

// respell gives modules the names that they have in adapter files. It returns the names that
// they had, or nil if none differs.
func (m *Model) respell() map[string]string {
	names, spelled := map[string]string{}, map[string]string{}
	differ := false
	for _, x := range m.Modules {
		names[x.inFiles()], spelled[x.Name] = x.Name, x.inFiles()
		differ = differ || x.inFiles() != x.Name
	}
	if !differ {
		return nil
	}
	m.Modules = slices.Clone(m.Modules)
	for i, x := range m.Modules {
		m.Modules[i].Name, m.Modules[i].TiedTo = spelled[x.Name], spelled[x.TiedTo]
	}
	return names
}

// restore gives the modules of a placement back the names that respell has returned.
func (p *Placement) restore(names map[string]string) {
	restore := func(m *Module) { m.Name, m.TiedTo = names[m.Name], names[m.TiedTo] }
	for i := range p.Targets {
		restore(&p.Targets[i].Module)
		p.Targets[i].SharesWith = names[p.Targets[i].SharesWith]
	}
	for i := range p.Saved {
		restore(&p.Saved[i].Module)
		p.Saved[i].SharesWith = names[p.Saved[i].SharesWith]
	}
	for i := range p.Tokens {
		restore(&p.Tokens[i].Module)
		for j := range p.Tokens[i].Tied {
			restore(&p.Tokens[i].Tied[j])
		}
	}
	p.modules = slices.Clone(p.modules)
	for _, modules := range [][]Module{p.Biases, p.modules, p.base, p.ends} {
		for i := range modules {
			restore(&modules[i])
		}
	}
}
