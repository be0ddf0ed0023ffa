package dialects

import (
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model/original"
	"github.com/lorafuse/lorafuse/lora"
)

// isOf reports whether the modules belong to a release.
func isOf(r original.Release, model lora.Model) bool {
	return slices.ContainsFunc(model.Modules, func(m lora.Module) bool {
		_, ok := original.Number(m.Name, r.Marker)
		return ok
	})
}

// lost reports whether diffusers (0.42.1, loaders/lora_conversion_utils.py) drops or
// changes the adapter of a layer when it loads a file of the form.
func lost(r original.Release, form Form, layer string) bool {
	block := strings.HasPrefix(layer, "double_blocks.") || strings.HasPrefix(layer, "single_blocks.")
	return r.Lost != nil && form != Diffusers && !block && r.Lost(layer, form == Kohya)
}

// layersOf returns the numbered instances of an original layer whose modules all exist
// in the model, in the order of the modules.
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
