package diffusion

import (
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

// family describes the pipelines of a transformer class. Each is registered in its own file.
type family struct {
	class string // of the transformer
	style Style
	// unguided changes the style for transformers without a guidance embedding. Nil means no
	// change.
	unguided func(s *Style)
	// fit resizes control images, unless the pipeline does so in another way. Nil means that
	// they are not supported.
	fit *fitting
	// pipelines lists the known pipelines. A transformer without model_index.json counts as
	// part of the first.
	pipelines []variant
}

// variant describes a pipeline class.
type variant struct {
	class    string
	captions *captions
	unread   string // why captions are not supported, if captions is nil
	controls bool   // accepts control images
	fit      *fitting
}

// families maps transformer classes to families.
var families = map[string]family{}

func register(f family) { families[f.class] = f }

// usual holds the inference defaults of unknown classes.
var usual = Style{Steps: 28, Guidance: flow.Extrapolate, Scale: 1, Told: 3.5}

// styleOf returns the inference defaults of a transformer class. guided reports whether the
// transformer takes a guidance embedding.
func styleOf(class string, guided bool) Style {
	f, ok := families[class]
	if !ok {
		return usual
	}
	if !guided && f.unguided != nil {
		f.unguided(&f.style)
	}
	return f.style
}

// supported returns the supported transformer classes as a list.
func supported() string { return strings.Join(slices.Sorted(maps.Keys(families)), ", ") }

// variants returns the classes of the known pipelines for which is returns true, in order.
func variants(is func(variant) bool) (names []string) {
	for _, f := range families {
		for _, v := range f.pipelines {
			if is(v) {
				names = append(names, v.class)
			}
		}
	}
	slices.Sort(names)
	return names
}

// variant returns the description of the pipeline. If it is unknown, only the class is set.
func (p *Pipeline) variant() variant {
	if p.Class == "" {
		if f, ok := families[p.transformerFields().String("_class_name", "")]; ok {
			return f.pipelines[0]
		}
	}
	for _, f := range families {
		for _, v := range f.pipelines {
			if v.class == p.Class {
				return v
			}
		}
	}
	return variant{class: p.Class}
}

// guided reports whether a transformer takes a guidance embedding.
func guided(f any) bool {
	t, ok := f.(dit.Transformer)
	return ok && t.Space().Guidance
}
