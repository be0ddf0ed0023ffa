package dialects

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model/original"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/lora"
)

// layer is the target of one name in a file. It is a module of the model, or several
// modules whose concatenated outputs are one layer of the original model.
type layer struct {
	name    string
	modules []lora.Module
	swapped bool // the halves of the outputs have changed places
}

// out returns the number of outputs.
func (l layer) out() int {
	n := 0
	for _, m := range l.modules {
		n += m.Out
	}
	return n
}

// String returns the names of the modules.
func (l layer) String() string {
	parts := make([]string, len(l.modules))
	for i, m := range l.modules {
		parts[i] = m.Name
	}
	return strings.Join(parts, " + ")
}

// names indexes the linear layers of a model by every name that files use for them.
type names struct {
	dotted, flat map[string]layer // flat: with _ for the dots
	originals    []layer          // layers under the names of kohya and ComfyUI, if these differ from diffusers'
	release      original.Release // zero if the model has the names of diffusers only
}

// namesOf lists the names of a model's layers.
func namesOf(model lora.Model) *names {
	n := &names{dotted: map[string]layer{}, flat: map[string]layer{}}
	linear := map[string]lora.Module{}
	for _, m := range model.Modules {
		if m.Kind == lora.Linear {
			linear[m.Name] = m
			n.add(layer{name: m.Name, modules: []lora.Module{m}})
		}
	}
	for _, r := range original.Releases() {
		if !isOf(r, model) {
			continue
		}
		n.release = r
		for _, o := range r.Layers {
			for _, l := range layersOf(o, model, linear) {
				n.add(l)
				if r.Written {
					n.originals = append(n.originals, l)
				}
			}
		}
	}
	return n
}

// add registers a layer; a name that exists keeps its layer.
func (n *names) add(l layer) {
	if n.dotted[l.name].name == "" {
		n.dotted[l.name] = l
	}
	if flat := flatten(l.name); n.flat[flat].name == "" {
		n.flat[flat] = l
	}
}

// flatten returns the name in kohya's spelling.
func flatten(name string) string { return strings.ReplaceAll(name, ".", "_") }

// find returns the layer with this name in a file; the name may have a prefix.
func (n *names) find(module string) (layer, bool) {
	for name, table := range n.readings(module) {
		if l, ok := table[name]; ok {
			return l, true
		}
	}
	return layer{}, false
}

// nearest returns the end of an error message about a name that find does not know.
func (n *names) nearest(module string) string {
	for name, table := range n.readings(module) {
		return suggest.DidYouMean(name, slices.Collect(maps.Keys(table)))
	}
	return ""
}

// readings yields the possible meanings of a module's name, without each prefix that it
// has, each with the table in which to look it up.
func (n *names) readings(module string) iter.Seq2[string, map[string]layer] {
	return func(yield func(string, map[string]layer) bool) {
		for _, p := range prefixes {
			name, ok := strings.CutPrefix(module, p.text)
			if !ok {
				continue
			}
			table := n.dotted
			if p.flat {
				table = n.flat
			}
			if !yield(name, table) {
				return
			}
		}
	}
}
