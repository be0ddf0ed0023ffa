package diffusion

import (
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// family holds the properties that the pipelines of a transformer share. Each family
// registers itself in its own file.
type family struct {
	// style returns the inference defaults; told reports whether the transformer takes a
	// guidance embedding.
	style func(told bool) Style
	// fit resizes control images. Nil means that they are not supported.
	fit *fitting
}

// families maps transformer classes to families.
var families = map[string]family{}

func register(class string, f family) { families[class] = f }

// familyOf returns the family of a transformer class. Unknown classes use the defaults of
// FLUX.1.
func familyOf(class string) family {
	if f, ok := families[class]; ok {
		return f
	}
	return family{style: func(bool) Style { return fluxStyle(true) }}
}

// supported returns the supported transformer classes as a list.
func supported() string { return strings.Join(slices.Sorted(maps.Keys(families)), ", ") }

// tells reports whether a transformer takes a guidance embedding.
func tells(f any) bool {
	t, ok := f.(dit.Transformer)
	return ok && t.Space().Guidance
}
