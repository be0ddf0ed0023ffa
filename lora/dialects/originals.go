package dialects

import (
	"slices"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model/original"
)

// isOf reports whether the modules are those of a release.
func isOf(r original.Release, model lora.Model) bool {
	return slices.ContainsFunc(model.Modules, func(m lora.Module) bool {
		_, ok := original.Number(m.Name, r.Marker)
		return ok
	})
}

// layersOf lists the layers called so in the release whose modules the model has, by their
// names, in the order of the modules.
func layersOf(o original.Layer, model lora.Model, linear map[string]lora.Module) (found []layer) {
	for _, m := range model.Modules {
		n, ok := original.Number(m.Name, o.In+o.Modules[0])
		if !ok {
			continue
		}
		l := layer{name: o.Numbered(n), swapped: o.Swapped}
		for i := range o.Modules {
			if part, ok := linear[o.Module(i, n)]; ok {
				l.modules = append(l.modules, part)
			}
		}
		if len(l.modules) == len(o.Modules) {
			found = append(found, l)
		}
	}
	return found
}
