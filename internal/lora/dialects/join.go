package dialects

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model/original"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// joined returns the entries and metadata of a file in the form of kohya or ComfyUI.
func (w *writer) joined() ([]safetensors.Entry, map[string]string, error) {
	n := namesOf(w.model)
	layers, released := w.layers(n), len(n.originals) > 0
	if err := w.checkLoads(n.release, layers); err != nil {
		return nil, nil, err
	}
	folded := n.release.Folded && w.form == ComfyUI
	ranks, alphas := map[int]int{}, map[float64]int{}
	var entries []safetensors.Entry
	for _, l := range layers {
		x, err := w.join(l)
		if err != nil {
			return nil, nil, fmt.Errorf("lora: save adapter: %s: %w", l, err)
		}
		if folded {
			if x, err = fold(x); err != nil {
				return nil, nil, fmt.Errorf("lora: save adapter: %s: %w", l, err)
			}
		}
		ranks[x.rank()]++
		alphas[x.alpha]++
		for _, part := range []struct {
			role lora.Role
			t    tensor.Tensor
		}{{lora.RoleA, x.a}, {lora.RoleB, x.b}} {
			e, err := entry(w.key(l, part.role, released && !folded), part.t)
			if err != nil {
				return nil, nil, err
			}
			entries = append(entries, e)
		}
		if !folded {
			entries = append(entries, scalarEntry(w.key(l, alpha, released), x.alpha))
		}
	}
	metadata := map[string]string{"format": "pt"}
	if w.form == Kohya {
		metadata["ss_network_module"] = "networks.lora"
		metadata["ss_network_dim"] = strconv.Itoa(mostFrequent(ranks))
		metadata["ss_network_alpha"] = strconv.FormatFloat(mostFrequent(alphas), 'g', -1, 32)
	}
	return entries, metadata, nil
}

// checkLoads rejects layers whose adapters diffusers would silently drop or change.
func (w *writer) checkLoads(r original.Release, layers []layer) error {
	var modules []string
	for _, l := range layers {
		if lost(r, w.form, l.name) {
			modules = append(modules, l.String())
		}
	}
	if len(modules) == 0 {
		return nil
	}
	return fmt.Errorf("lora: save adapter: %w by the form %s: adapters of %s, which diffusers would not load from it; expected the form %s",
		lora.ErrUnsupported, w.form, strings.Join(modules, ", "), Diffusers)
}

// layers returns the layers with an adapter, under the names of the form, in the order
// of their first modules.
func (w *writer) layers(n *names) (layers []layer) {
	in := map[string]layer{} // by their modules
	for _, l := range n.originals {
		for _, m := range l.modules {
			in[m.Name] = l
		}
	}
	for _, t := range w.placement.Targets {
		l, ok := in[t.Name]
		if !ok {
			l = n.dotted[t.Name]
		}
		if !slices.ContainsFunc(layers, func(x layer) bool { return x.name == l.name }) {
			layers = append(layers, l)
		}
	}
	return layers
}

// key returns the key of a tensor in the form. For models with original names, ComfyUI
// and diffusers read .lora_down; for other models and for folded layers, diffusers
// reads only .lora_A.
func (w *writer) key(l layer, r lora.Role, original bool) string {
	prefix, name, style := "lora_unet_", flatten(l.name), 4 // .lora_down.weight of endings
	if w.form == ComfyUI {
		prefix, name = "diffusion_model.", l.name
		if !original {
			style = 0 // .lora_A.weight
		}
	}
	if r == alpha {
		return prefix + name + ".alpha"
	}
	return prefix + name + endings[style+half(r)].text
}

// join combines the adapters of the modules of one layer into the adapter of the layer.
func (w *writer) join(l layer) (piece, error) {
	var pieces []piece
	for _, m := range l.modules {
		t, ok := w.placement.Target(m.Name)
		if !ok {
			continue
		}
		a, _ := w.adapter.Tensor(t.Key(lora.RoleA))
		b, _ := w.adapter.Tensor(t.Key(lora.RoleB))
		pieces = append(pieces, piece{module: m, a: a, b: b, alpha: t.Scale * float64(t.Rank)})
	}
	whole := pieces[0]
	var err error
	switch {
	case len(l.modules) == 1:
	case len(pieces) == len(l.modules) && shareA(pieces):
		data := make([][]byte, len(pieces))
		for i, p := range pieces {
			data[i] = p.b.Data
		}
		whole.b = tensor.Tensor{DType: whole.b.DType, Shape: []int{l.out(), whole.rank()}, Data: slices.Concat(data...)}
	default:
		whole, err = diagonal(l, pieces)
	}
	return whole, err
}

// shareA reports whether all pieces have the same A and scale, and B of one type.
func shareA(pieces []piece) bool {
	first := pieces[0]
	return !slices.ContainsFunc(pieces[1:], func(p piece) bool {
		return p.alpha != first.alpha || p.a.DType != first.a.DType || p.b.DType != first.b.DType || !bytes.Equal(p.a.Data, first.a.Data)
	})
}

// diagonal joins adapters into one with a block-diagonal B. Each module gets as many
// rows of A and columns of B as the largest rank, padded with zeros, so that readers
// can find the blocks. The scale is that of the first module; the B of the others is
// multiplied by the ratio of the scales.
func diagonal(l layer, pieces []piece) (piece, error) {
	block, in := 0, l.modules[0].In
	for _, p := range pieces {
		block = max(block, p.rank())
	}
	rank := block * len(l.modules)
	scale := pieces[0].alpha / float64(pieces[0].rank())
	dtype := pieces[0].b.DType
	a, b := make([]float32, rank*in), make([]float32, l.out()*rank)
	row := 0
	for k, m := range l.modules {
		i := slices.IndexFunc(pieces, func(p piece) bool { return p.module.Name == m.Name })
		if i >= 0 {
			p := pieces[i]
			valuesA, err := p.a.Float32s()
			if err != nil {
				return piece{}, err
			}
			copy(a[k*block*in:], valuesA)
			valuesB, err := p.b.Float32s()
			if err != nil {
				return piece{}, err
			}
			factor := p.alpha / float64(p.rank()) / scale
			if factor != 1 || p.a.DType != dtype || p.b.DType != dtype {
				dtype = tensor.F32
			}
			for o := range m.Out {
				for r := range p.rank() {
					b[(row+o)*rank+k*block+r] = float32(float64(valuesB[o*p.rank()+r]) * factor)
				}
			}
		}
		row += m.Out
	}
	whole := piece{alpha: scale * float64(rank)}
	var err error
	if whole.a, err = matrix(a, rank, in, dtype); err == nil {
		whole.b, err = matrix(b, l.out(), rank, dtype)
	}
	return whole, err
}

// fold multiplies alpha into B, and returns an equivalent adapter without an alpha.
func fold(p piece) (piece, error) {
	factor := p.alpha / float64(p.rank())
	if factor == 1 {
		return p, nil
	}
	values, err := p.b.Float32s()
	if err != nil {
		return p, err
	}
	b := make([]float32, len(values))
	for i, v := range values {
		b[i] = float32(float64(v) * factor)
	}
	p.alpha = float64(p.rank())
	if p.b, err = tensor.FromFloat32s(b, p.b.Shape...); err == nil {
		p.a, err = p.a.Convert(tensor.F32)
	}
	return p, err
}

// matrix returns the values as a tensor of type d.
func matrix(values []float32, rows, columns int, d tensor.DType) (tensor.Tensor, error) {
	t, err := tensor.FromFloat32s(values, rows, columns)
	if err != nil {
		return t, err
	}
	return t.Convert(d)
}

// entry returns the tensor as an entry of a safetensors file.
func entry(key string, t tensor.Tensor) (safetensors.Entry, error) {
	d, err := safetensors.ParseDType(t.DType.String())
	if err != nil {
		return safetensors.Entry{}, fmt.Errorf("lora: save adapter: tensor %q: %w", key, err)
	}
	return safetensors.Entry{Name: key, DType: d, Shape: t.Shape, Data: t.Data}, nil
}

// scalarEntry returns a file entry of a float32 without dimensions.
func scalarEntry(key string, x float64) safetensors.Entry {
	t, _ := tensor.FromFloat32s([]float32{float32(x)}) // one element, as the shape has
	return safetensors.Entry{Name: key, DType: safetensors.F32, Data: t.Data}
}
