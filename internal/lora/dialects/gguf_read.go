package dialects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// placed is a module of a model and its tensor in GGUF files.
type placed struct {
	module lora.Module
	part   llamacpp.Part
}

// ReadGGUF reads an adapter of llama.cpp for a model, which must be of the file's
// architecture. Quantised tensors become float32. The scale of a layer is that which
// llama.cpp computes: adapter.lora.alpha/rank, or 1 without alpha.
//
// Errors: those of gguf.Open and llamacpp.Describe; lora.ErrConfig for other metadata; a
// [lora.CheckError] with all tensors that do not fit.
func ReadGGUF(path string, m *model.Model) (*lora.Adapter, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	defer g.Close()
	d, err := llamacpp.Describe(m)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	strength, err := ggufAlpha(g, d.Architecture)
	if err != nil {
		return nil, fmt.Errorf("lora: adapter %s: %w", path, err)
	}
	f := &file{path: path, model: lora.ModelOf(m.Config.ModelType, m.Modules())}
	places := map[string]placed{}
	for _, x := range f.model.Modules {
		if x.Kind != lora.Linear || x.TiedTo != "" {
			continue
		}
		if parts, err := d.Parts(x.Name + ".weight"); err == nil && len(parts) == 1 {
			places[parts[0].Name] = placed{x, parts[0]}
		}
	}
	groups := map[string]*group{}
	for i := range g.Tensors {
		name := g.Tensors[i].Name
		base, role := strings.TrimSuffix(name, ".lora_a"), lora.RoleA
		if base == name {
			base, role = strings.TrimSuffix(name, ".lora_b"), lora.RoleB
		}
		p, ok := places[base]
		if base == name || !ok {
			f.add(lora.ErrUnmatched, name, "expected .lora_a or .lora_b of a linear layer of the model%s", suggest.DidYouMean(base, slices.Collect(maps.Keys(places))))
			continue
		}
		f.place(groups, layer{name: base, modules: []lora.Module{p.module}}, role, name)
	}
	var pieces []piece
	for _, x := range f.groups {
		a, okA := f.ggufTensor(g, x, lora.RoleA)
		b, okB := f.ggufTensor(g, x, lora.RoleB)
		if !okA || !okB || !f.fits(x, a, b) {
			continue
		}
		p := piece{module: x.layer.modules[0], a: a, b: b, alpha: strength, group: x}
		if strength == 0 {
			p.alpha = float64(p.rank())
		}
		values, err := b.Float32s()
		if err != nil {
			return nil, err
		}
		part := places[x.layer.name].part
		p.b = tensor32(part.Undo(values, b.Shape), b.Shape[0], b.Shape[1])
		pieces = append(pieces, p)
	}
	return f.build(pieces)
}

// ggufAlpha checks the metadata of an adapter and returns its alpha, or 0 if it has none.
func ggufAlpha(g *gguf.File, architecture string) (float64, error) {
	for _, x := range []struct{ key, want, hint string }{
		{"general.type", "adapter", ""}, {"adapter.type", "lora", ""}, {"general.architecture", architecture, ", the architecture of the model"},
	} {
		found, err := g.Text(x.key)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", lora.ErrConfig, err)
		}
		if found != x.want {
			return 0, fmt.Errorf("%w: %s: found %q, expected %q%s", lora.ErrConfig, x.key, found, x.want, x.hint)
		}
	}
	for _, kv := range g.Keys {
		if strings.HasPrefix(kv.Key, "adapter.") && kv.Key != "adapter.type" && kv.Key != "adapter.lora.alpha" {
			return 0, fmt.Errorf("%w: %s, expected adapter.lora.alpha only", lora.ErrUnsupported, kv.Key)
		}
	}
	if !g.Has("adapter.lora.alpha") {
		return 0, nil
	}
	alpha, err := g.Float("adapter.lora.alpha")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", lora.ErrConfig, err)
	}
	return alpha, nil
}

// ggufTensor returns a tensor of a group as float32.
func (f *file) ggufTensor(g *gguf.File, x *group, role lora.Role) (t tensor.Tensor, ok bool) {
	name := x.keys[role]
	if name == "" {
		f.add(lora.ErrMissing, x.layer.name+map[lora.Role]string{lora.RoleA: ".lora_a", lora.RoleB: ".lora_b"}[role], "the other half is there")
		return t, false
	}
	info, err := g.Tensor(name)
	switch {
	case err != nil:
		f.add(lora.ErrMissing, name, "%v", err)
		return t, false
	case len(info.Shape) != 2:
		f.add(lora.ErrShape, name, "found %v, expected two dimensions", info.Shape)
		return t, false
	case info.Type.DType() == tensor.Invalid:
		f.add(lora.ErrDType, name, "found %v, expected one of %s", info.Type, strings.Join(gguf.Readable(), ", "))
		return t, false
	}
	values := make([]float32, info.Elements())
	if err := g.Float32s(values, info, 0); err != nil {
		f.add(lora.ErrMissing, name, "its bytes cannot be read: %v", err)
		return t, false
	}
	return tensor32(values, info.Shape[0], info.Shape[1]), true
}
