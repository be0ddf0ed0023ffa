package lora

import (
	"fmt"
	"maps"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// ModelOf describes a model's modules for the targeting rules. modelType is
// model_type of config.json.
func ModelOf(modelType string, modules []nn.Module) Model {
	m := Model{Type: modelType}
	kinds := map[nn.Kind]Kind{nn.KindLinear: Linear, nn.KindEmbedding: Embedding, nn.KindNorm: Norm, nn.KindParameter: Parameter, nn.KindConv1D: Conv1D}
	for _, x := range modules {
		m.Modules = append(m.Modules, Module{
			Name: x.Name, Kind: kinds[x.Kind], In: x.In, Out: x.Out, Bias: x.Bias,
			InputEmbedding: x.InputEmbedding, OutputEmbedding: x.OutputEmbedding, TiedTo: x.TiedTo,
			Count: x.Count, Parts: x.Parts, Transposed: x.Transposed,
		})
	}
	return m
}

// Injection is an adapter's part in a model's graph, an [nn.Adapter]. Its
// trained params have the keys of the adapter file as their names.
type Injection struct {
	placement *Placement
	targets   map[string]Target
	params    map[string]TensorSpec     // of modules, by module.weight or module.bias
	tokens    map[string]TokenPlacement // by module; heads that follow an embedding too
	// base holds replacements of checkpoint weights, by module: residuals, and base
	// weights saved with the adapter.
	base map[string]*tensor.Tensor
	// constants holds the fixed tensors that graphs read, by name.
	constants map[string]*tensor.Tensor
	// types holds the element types of params that are not f32.
	types map[string]tensor.DType
}

// NewInjection prepares the placement for use in graphs. w provides the weights of the
// model; base may hold replacements of them, by module (see [Target.Residual]). If a
// method needs the weights of its targets, they are read once, here.
func NewInjection(p *Placement, w nn.Weights, base map[string]*tensor.Tensor) (*Injection, error) {
	j := &Injection{
		placement: p, targets: map[string]Target{}, params: map[string]TensorSpec{}, tokens: map[string]TokenPlacement{},
		base: base, constants: map[string]*tensor.Tensor{},
	}
	for _, t := range p.Targets {
		j.targets[t.Name] = t
		constants, err := t.adapter().constants(t, func() ([]float32, error) { return BaseWeight(t.Module, w, base) })
		if err != nil {
			return nil, err
		}
		maps.Copy(j.constants, constants)
	}
	for name, t := range base {
		j.constants[basePrefix+name+".weight"] = t
	}
	for _, s := range p.Tensors() {
		if s.Role == RoleSaved || s.Role == RoleBias {
			j.params[s.Module+"."+s.Param] = s
		}
	}
	for _, m := range p.Saved {
		if m.SharesWith != "" {
			j.params[m.Name+".weight"] = j.params[m.SharesWith+".weight"]
		}
	}
	for _, t := range p.Tokens {
		j.tokens[t.Name], j.constants[tokensPrefix+t.Name] = t, t.numbers()
		for _, m := range t.Tied {
			j.tokens[m.Name] = t
		}
	}
	return j, nil
}

// BaseWeight returns the weight that a module computes with, as float32: its entry in
// base, or else the weight in the checkpoint.
func BaseWeight(m Module, w nn.Weights, base map[string]*tensor.Tensor) ([]float32, error) {
	if t := base[m.Name]; t != nil {
		return t.Float32s()
	}
	x, err := w.Weight(stored(m) + ".weight")
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	return x.Float32s()
}

// Param implements [nn.Adapter]. It returns the trained parameter if the module is saved whole or
// its bias is trained, or else the replacement of the checkpoint's weight, or else frozen.
func (j *Injection) Param(b *nn.Builder, m nn.Module, name string, frozen graph.Tensor) graph.Tensor {
	if s, ok := j.params[name]; ok {
		return b.Train(s.Key, s.Shape...)
	}
	if t := j.base[m.Name]; t != nil && name == m.Name+".weight" {
		return b.Constant(basePrefix+name, t)
	}
	return frozen
}

// Choose implements [nn.Adapter]. It returns false, because all rows use the parameters of this
// adapter.
func (j *Injection) Choose(*nn.Builder, nn.Module, func(*nn.Builder) graph.Tensor) (graph.Tensor, bool) {
	return graph.Tensor{}, false
}

// layer returns a target in a graph.
func (j *Injection) layer(b *nn.Builder, m nn.Module, x, w, bias graph.Tensor) (l layer, ok bool) {
	t, ok := j.targets[m.Name]
	return layer{b: b, j: j, t: t, m: m, x: x, w: w, bias: bias}, ok
}

// Linear implements [nn.Adapter]. It emits the layer x Wᵀ + bias with the contribution of the
// adapter, or with trained token rows. It returns false if the adapter does not change the module.
func (j *Injection) Linear(b *nn.Builder, m nn.Module, x, w, bias graph.Tensor) (graph.Tensor, bool) {
	if t, ok := j.tokens[m.Name]; ok {
		down, up := j.tokenFactors(b, m, t, w)
		return x.LoRA(w, graph.Tensor{}, x.MatMulT(down), up, 1), true
	}
	l, ok := j.layer(b, m, x, w, bias)
	if !ok {
		return graph.Tensor{}, false
	}
	if sum, ok := l.terms(); ok {
		return l.sum(sum), true
	}
	return l.t.adapter().linear(l), true
}

// Embedding implements [nn.Adapter]. It emits a lookup of the rows ids of w with the contribution
// of the adapter, or with trained rows. It returns false if the adapter does not change the module.
func (j *Injection) Embedding(b *nn.Builder, m nn.Module, ids, w graph.Tensor) (graph.Tensor, bool) {
	if t, ok := j.tokens[m.Name]; ok {
		return j.tokenRows(b, m, t, ids, w), true
	}
	l, ok := j.layer(b, m, graph.Tensor{}, w, graph.Tensor{})
	if !ok {
		return graph.Tensor{}, false
	}
	return l.t.adapter().embedding(l, ids), true
}

// Stack implements [nn.Adapter] for routed experts. It adds the adapter's contribution to ys, whose
// concatenated columns are the product of each row of x and the matrix that index selects.
func (j *Injection) Stack(b *nn.Builder, m nn.Module, x, index graph.Tensor, ys ...graph.Tensor) []graph.Tensor {
	l, ok := j.layer(b, m, x, graph.Tensor{}, graph.Tensor{})
	if !ok || !x.Valid() {
		return ys
	}
	return l.t.adapter().stack(l, index, ys)
}

var _ nn.Adapter = (*Injection)(nil)
