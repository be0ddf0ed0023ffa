package diffusion

import (
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/diffusion/dit"
)

// family is what the pipelines of a transformer have in common. Each lies in a file of its
// own, which registers it.
type family struct {
	// style is how they draw; told says that the transformer is told its guidance.
	style func(told bool) Style
	// fit is how they take pictures to begin with, nil where they take none.
	fit *fitting
}

// families are those of all transformers, by their classes.
var families = map[string]family{}

func register(class string, f family) { families[class] = f }

// familyOf is the family of a transformer, by its class: others draw as FLUX.1 does.
func familyOf(class string) family {
	if f, ok := families[class]; ok {
		return f
	}
	return family{style: func(bool) Style { return fluxStyle(true) }}
}

// supported names the classes of transformers.
func supported() string { return strings.Join(slices.Sorted(maps.Keys(families)), ", ") }

// tells reports whether a transformer is told its guidance.
func tells(f any) bool {
	t, ok := f.(dit.Transformer)
	return ok && t.Space().Guidance
}
