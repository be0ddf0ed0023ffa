package single

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model/original"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
)

// part is a diffusers tensor, stored as rows of a tensor in the file.
type part struct {
	name  string // in diffusers
	key   string // in the file
	dtype safetensors.DType
	shape []int
	rows  []safetensors.Span // concatenated; nil means all
	scale string             // tensor of scale factors; may be empty
	of    string             // tensor that this part scales; may be empty
}

// Suffixes of tensors that accompany 8-bit weights in ComfyUI files: scales of weights, and
// tensors that only 8-bit activations need.
var (
	scales = []string{"scale_weight", "weight_scale"}
	unused = []string{"scale_input", "input_scale", "comfy_quant"}
)

// markers lists tensors of ComfyUI without values: their presence means that weights have 8
// bits, or that controls are modulated as at timestep 0.
var markers = []string{"scaled_fp8", "__index_timestep_zero__"}

// split finds the parts of all tensors.
func (f *file) split() error {
	scale := map[string]string{} // by the weight
	for _, key := range f.raw.Names() {
		inner, ours, err := f.kind.inner(key)
		if err != nil {
			return err
		}
		if !ours {
			continue
		}
		switch module, param := cut(inner); {
		case slices.Contains(markers, inner):
			f.marks = append(f.marks, inner)
		case slices.Contains(scales, param):
			scale[f.kind.prefix+module+".weight"] = key
		case slices.Contains(unused, param):
		case f.kind.release != nil && slices.Contains(f.kind.release.Unused, inner):
		default:
			v, err := f.raw.Lookup(key)
			if err != nil {
				return err
			}
			parts, err := f.kind.parts(inner, part{key: key, dtype: v.DType, shape: v.Shape})
			if err != nil {
				return err
			}
			f.parts = append(f.parts, parts...)
		}
	}
	known := map[string]string{}
	for i := range f.parts {
		p := &f.parts[i]
		if other, ok := known[p.name]; ok {
			return fmt.Errorf("%w: a mix of forms: %q and %q are both %s", ErrFile, other, p.key, p.name)
		}
		known[p.name], p.scale = p.key, scale[p.key]
	}
	if err := f.keepScales(); err != nil {
		return err
	}
	for _, weight := range slices.Sorted(maps.Keys(scale)) {
		if !f.raw.Has(weight) {
			return fmt.Errorf("%w: tensor %q: found no tensor %q that it is the scale of", ErrFile, scale[weight], weight)
		}
	}
	return nil
}

// keepScales keeps the scales of F8_E4M3 weights as separate tensors, because the model
// applies them itself. The scale of a whole matrix is repeated for each of its parts; row
// scales are split with the rows.
func (f *file) keepScales() error {
	var kept []part
	for i := range f.parts {
		p := &f.parts[i]
		if p.scale == "" || p.dtype != safetensors.F8E4M3 {
			continue
		}
		v, err := f.raw.Lookup(p.scale)
		if err != nil {
			return err
		}
		whole, err := f.raw.Lookup(p.key)
		if err != nil {
			return err
		}
		module, _ := cut(p.name)
		s := part{name: module + "." + scales[0], key: p.scale, dtype: v.DType, shape: v.Shape, of: p.name}
		if len(v.Shape) > 0 && v.Shape[0] == whole.Shape[0] && v.Shape[0] > 1 && p.rows != nil {
			s.rows = p.rows
			s.shape = append([]int{p.shape[0]}, v.Shape[1:]...)
		}
		kept, p.scale = append(kept, s), ""
	}
	f.parts = append(f.parts, kept...)
	return nil
}

// inner returns a name without the prefix. ours is false for tensors of another part.
func (k kind) inner(key string) (name string, ours bool, err error) {
	if name, ok := strings.CutPrefix(key, k.prefix); ok {
		return name, true, nil
	}
	for _, other := range otherParts {
		if k.prefix == wholeCheckpoint && strings.HasPrefix(key, other) {
			return "", false, nil
		}
	}
	return "", false, fmt.Errorf("%w: a mix of forms: tensor %q has not the prefix %q of the others", ErrFile, key, k.prefix)
}

// parts returns the parts of the tensor called inner.
func (k kind) parts(inner string, whole part) ([]part, error) {
	if k.release == nil {
		whole.name = inner
		return []part{whole}, nil
	}
	module, param := cut(inner)
	if param == "scale" {
		param = "weight" // of norms
	}
	for _, l := range k.release.Layers {
		if block, ok := original.Number(module, l.Name); ok {
			return divide(l, block, param, whole)
		}
	}
	key := k.key(inner)
	switch {
	case key != whole.key:
		return nil, fmt.Errorf("%w: a mix of forms: tensor %q has a name of diffusers, the others have those of the first release: it is %q there", ErrFile, whole.key, key)
	case k.release.Whole:
		return nil, fmt.Errorf("%w: tensor %q: unknown name%s", ErrFile, whole.key, suggest.DidYouMean(module, k.layers()))
	}
	whole.name = inner
	return []part{whole}, nil
}

// layers returns the layer names of the release.
func (k kind) layers() []string {
	names := make([]string, len(k.release.Layers))
	for i, l := range k.release.Layers {
		names[i] = l.Numbered("0")
	}
	return names
}

// divide assigns rows to each module of a layer.
func divide(l original.Layer, block, param string, whole part) ([]part, error) {
	shares, total := l.Shares, 0
	if shares == nil {
		for range l.Modules {
			shares = append(shares, 1)
		}
	}
	for _, n := range shares {
		total += n
	}
	halves := 1
	if l.Swapped {
		halves = 2
	}
	if len(whole.shape) == 0 && total*halves > 1 || len(whole.shape) > 0 && whole.shape[0]%(total*halves) != 0 {
		return nil, fmt.Errorf("%w: tensor %q: found the shape %v, expected rows that are a multiple of %d", ErrFile, whole.key, whole.shape, total*halves)
	}
	var parts []part
	from := 0
	for i, n := range shares {
		p := whole
		p.name = l.Module(i, block) + "." + param
		switch {
		case l.Swapped:
			half := whole.shape[0] / 2
			p.rows = []safetensors.Span{{From: half, To: 2 * half}, {From: 0, To: half}}
		case total > 1:
			n *= whole.shape[0] / total
			p.shape = append([]int{n}, whole.shape[1:]...)
			p.rows = []safetensors.Span{{From: from, To: from + n}}
			from += n
		}
		parts = append(parts, p)
	}
	return parts, nil
}
