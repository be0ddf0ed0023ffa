package lora

import (
	"encoding/binary"
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// ModelOf describes a model's modules for the targeting rules. modelType is
// model_type of config.json.
func ModelOf(modelType string, modules []nn.Module) Model {
	m := Model{Type: modelType}
	kinds := map[nn.Kind]Kind{nn.KindLinear: Linear, nn.KindEmbedding: Embedding, nn.KindNorm: Norm, nn.KindParameter: Parameter}
	for _, x := range modules {
		m.Modules = append(m.Modules, Module{
			Name: x.Name, Kind: kinds[x.Kind], In: x.In, Out: x.Out, Bias: x.Bias,
			InputEmbedding: x.InputEmbedding, OutputEmbedding: x.OutputEmbedding, TiedTo: x.TiedTo,
			Count: x.Count, Parts: x.Parts,
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
	// norms holds ‖W‖² of DoRA's targets, per output.
	norms map[string]*tensor.Tensor
	// types holds the element types of params that are not f32.
	types map[string]tensor.DType
}

// NewInjection prepares the placement for use in graphs. w provides the weights of the
// model; base may hold replacements of them, by module (see [Target.Residual]). The
// weights of DoRA's targets are read once, here.
func NewInjection(p *Placement, w nn.Weights, base map[string]*tensor.Tensor) (*Injection, error) {
	j := &Injection{
		placement: p, targets: map[string]Target{}, params: map[string]TensorSpec{}, tokens: map[string]TokenPlacement{},
		base: base, norms: map[string]*tensor.Tensor{},
	}
	for _, t := range p.Targets {
		j.targets[t.Name] = t
		if !t.DoRA {
			continue
		}
		norms, err := j.weightNorms(t, w)
		if err != nil {
			return nil, err
		}
		j.norms[t.Name] = norms
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
		j.tokens[t.Name] = t
		for _, m := range t.Tied {
			j.tokens[m.Name] = t
		}
	}
	return j, nil
}

// weightNorms returns the squared norms ‖W‖² of the rows of a target's weight, per
// output.
func (j *Injection) weightNorms(t Target, w nn.Weights) (*tensor.Tensor, error) {
	weight, err := BaseWeight(t.Module, w, j.base)
	if err != nil {
		return nil, err
	}
	sums := make([]float32, t.Out)
	for i, n := range t.norms(weight) {
		sums[i] = float32(n * n)
	}
	out, err := float32Tensor(sums, t.Out)
	return &out, err
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

// Param returns the trained parameter if the module is saved whole or its bias is
// trained, or else the replacement of the checkpoint's weight, if any.
func (j *Injection) Param(b *nn.Builder, m nn.Module, name string, frozen graph.Tensor) graph.Tensor {
	if s, ok := j.params[name]; ok {
		return b.Train(s.Key, s.Shape...)
	}
	if t := j.base[m.Name]; t != nil && name == m.Name+".weight" {
		return b.Constant(basePrefix+name, t)
	}
	return frozen
}

// Choose reports false: all rows use the parameters of this adapter.
func (j *Injection) Choose(*nn.Builder, nn.Module, func(*nn.Builder) graph.Tensor) (graph.Tensor, bool) {
	return graph.Tensor{}, false
}

// Linear emits the layer with its adapter, or with its trained token rows.
func (j *Injection) Linear(b *nn.Builder, m nn.Module, x, w, bias graph.Tensor) (graph.Tensor, bool) {
	down, up, scale, ok := j.factors(b, m, w)
	if !ok {
		return graph.Tensor{}, false
	}
	t, ok := j.targets[m.Name]
	if !ok {
		return x.LoRA(w, graph.Tensor{}, x.MatMulT(down), up, scale), true
	}
	drop := ir.DropoutAttr{Stream: nn.Stream(m.Name)}
	var key graph.Tensor
	if b.Training() && t.Dropout > 0 {
		drop.P, key = t.Dropout, b.Key()
	}
	if t.DoRA {
		return j.dora(b, t, x, w, bias, down, up, key, drop), true
	}
	y := x.LoRA(w, bias, x.LoRADown(down, key, drop), up, scale)
	if t.LoraBias {
		y = y.Add(loraBias(b, t))
	}
	return y, true
}

// factors returns the factors of the adapter's addition to a product with w: scale·x
// downᵀ upᵀ.
func (j *Injection) factors(b *nn.Builder, m nn.Module, w graph.Tensor) (down, up graph.Tensor, scale float64, ok bool) {
	if t, ok := j.tokens[m.Name]; ok {
		down, up = j.tokenFactors(b, m, t, w)
		return down, up, 1, true
	}
	t, ok := j.targets[m.Name]
	if !ok {
		return down, up, 0, false
	}
	return j.factor(b, t.Key(RoleA), t.Rank, t.In), j.factor(b, t.Key(RoleB), t.Out, t.Rank), t.Scale, true
}

// factor returns A or B of a linear target.
func (j *Injection) factor(b *nn.Builder, key string, shape ...int) graph.Tensor {
	if d, ok := j.types[key]; ok {
		return b.TrainedAs(d, key, shape...)
	}
	return b.Train(key, shape...)
}

// loraBias returns the scaled bias of B, which is added to each row.
func loraBias(b *nn.Builder, t Target) graph.Tensor {
	return b.Train(t.Key(RoleBBias), t.Out).Scale(t.Scale)
}

// dora is bias + g·(W x + s·BA x) with g = m/‖W + s·BA‖ (Liu et al. 2024,
// arXiv 2402.09353); with dropout x is dropped in all but W x itself, as in
// PEFT: W x + bias + (g−1)·W drop(x) + g·s·BA drop(x).
func (j *Injection) dora(b *nn.Builder, t Target, x, w, bias, down, up, key graph.Tensor, drop ir.DropoutAttr) graph.Tensor {
	g := j.stretch(b, t, w, down, up)
	if drop.P == 0 {
		y := x.LoRA(w, graph.Tensor{}, x.LoRADown(down, key, drop), up, t.Scale).Mul(g)
		if bias.Valid() {
			y = y.Add(bias.Cast(tensor.F32))
		}
		return y
	}
	d := x.Dropout(key, drop)
	none := graph.Tensor{}
	y := x.Linear(w, bias).Add(d.Linear(w, none).Mul(g.AddScalar(-1)))
	return y.Add(d.Linear(down, none).Linear(up, none).Scale(t.Scale).Mul(g))
}

// stretch returns DoRA's g = m/‖W + s·BA‖ per output.
func (j *Injection) stretch(b *nn.Builder, t Target, w, down, up graph.Tensor) graph.Tensor {
	return b.Train(t.Key(RoleMagnitude), t.Out).Div(j.norm(b, t, w, down, up))
}

// norm is ‖W + s·BA‖ per output, taken as a constant, without the sum itself:
// ‖W‖² + 2s·Σ (W Aᵀ)∘B + s²·Σ (B (AAᵀ))∘B. It reads all of W, and changes with the
// adapter only: once in a step of the optimizer, however many batches that has.
func (j *Injection) norm(b *nn.Builder, t Target, w, down, up graph.Tensor) graph.Tensor {
	one := func(a, c graph.Tensor, ta, tb bool) graph.Tensor {
		return b.G.Gemm([]ir.Product{{A: a.Value(), B: c.Value(), TA: ta, TB: tb, Alpha: 1}}, graph.Tensor{}, graph.Tensor{})
	}
	var both graph.Tensor // W Aᵀ
	if w.Valid() && w.Type().DType.Quantized() {
		both = one(down, w, false, true).Transpose(1, 0) // quantised weights are the second factor alone
	} else {
		both = one(w, down, t.Kind == Embedding, true)
	}
	cross := both.Mul(up).Sum(1).Scale(2 * t.Scale)
	square := one(up, one(down, down, false, true), false, false).Mul(up).Sum(1).Scale(t.Scale * t.Scale)
	base := b.Constant(normPrefix+t.Name, j.norms[t.Name])
	return b.Precompute("norm."+t.Name+".adapted", base.Add(cross).Add(square).Apply(ir.Sqrt).Detach())
}

// Embedding emits a lookup of the rows ids of w, with the adapter's addition or with
// trained rows.
func (j *Injection) Embedding(b *nn.Builder, m nn.Module, ids, w graph.Tensor) (graph.Tensor, bool) {
	if t, ok := j.tokens[m.Name]; ok {
		return j.tokenRows(b, m, t, ids, w), true
	}
	t, ok := j.targets[m.Name]
	if !ok {
		return graph.Tensor{}, false
	}
	down, up := b.Train(t.Key(RoleA), t.Rank, t.In), b.Train(t.Key(RoleB), t.Out, t.Rank)
	table := down.Transpose(1, 0)
	if !b.Training() {
		table = b.Precompute("rows."+t.Name, table.Detach())
	}
	h := b.WithoutPadding(m, ids, table.Gather(ids))
	rows := w.Gather(ids)
	if !t.DoRA {
		return b.G.Gemm([]ir.Product{{A: h.Value(), B: up.Value(), TB: true, Alpha: float32(t.Scale)}}, graph.Tensor{}, rows), true
	}
	g := j.stretch(b, t, w, down, up)
	return b.G.Gemm([]ir.Product{{A: h.Value(), B: up.Value(), TB: true, Alpha: float32(t.Scale)}}, graph.Tensor{}, rows).Mul(g), true
}

// Stack adds Scale·B_e·A_e x to the rows with index e. A is applied to x once; each of
// ys then uses its own part of the rows of B.
func (j *Injection) Stack(b *nn.Builder, m nn.Module, x, index graph.Tensor, ys ...graph.Tensor) []graph.Tensor {
	t, ok := j.targets[m.Name]
	if !ok || !x.Valid() {
		return ys
	}
	e, r, out := ir.Static(t.matrices()), ir.Static(t.Rank), ir.Static(t.Out)
	down := b.Train(t.Key(RoleA), e.N*r.N, t.In).Reshape(e, r, ir.Static(t.In))
	up := b.Train(t.Key(RoleB), t.Out, r.N*e.N).Reshape(out, r, e)
	h := x.RowsGemm(index, graph.RowsWeights{Matrices: []graph.Tensor{down}, Stacked: true}, graph.Tensor{})
	sums, at := make([]graph.Tensor, len(ys)), 0
	for i, y := range ys {
		if !y.Valid() {
			return ys
		}
		n := y.Type().Last().N
		own := up.Slice(0, at, at+n).Transpose(2, 0, 1)
		if !b.Training() {
			own = b.Precompute(fmt.Sprintf("stack.%s.%d", t.Name, at), own.Detach())
		}
		sums[i] = h.RowsGemm(index, graph.RowsWeights{Matrices: []graph.Tensor{own}, Stacked: true, Scale: b.G.Const(t.Scale, e)}, y)
		at += n
	}
	return sums
}

// tokenRows emits a lookup of the rows ids of w; rows of trained tokens come from the
// adapter.
func (j *Injection) tokenRows(b *nn.Builder, m nn.Module, t TokenPlacement, ids, w graph.Tensor) graph.Tensor {
	n, k := ids.Type().Shape[0], len(t.Tokens)
	rows, index := j.tokenParams(b, t)
	hit := ids.Reshape(n, ir.Static(1)).Compare(ir.Equal, index.Reshape(ir.Static(1), ir.Static(k)))
	choice := hit.Where(b.G.Const(1, n, ir.Static(k)), b.G.Const(0, n, ir.Static(k)))
	some := choice.Sum(1).Reshape(n, ir.Static(1)).Compare(ir.Greater, b.G.Const(0, n, ir.Static(1)))
	return some.Where(b.WithoutPadding(m, ids, choice.MatMul(rows)), w.Gather(ids))
}

// tokenFactors returns the factors of a head W' with trained token rows: x W'ᵀ = x Wᵀ +
// x (rows − W[tokens])ᵀ in the columns of the tokens, a product of rank len(tokens).
func (j *Injection) tokenFactors(b *nn.Builder, m nn.Module, t TokenPlacement, w graph.Tensor) (down, up graph.Tensor) {
	rows, index := j.tokenParams(b, t)
	k, v := ir.Static(len(t.Tokens)), ir.Static(m.Out)
	hit := b.G.Of(b.G.IR().Iota(0, ir.Shape{v, ir.Static(1)})).Compare(ir.Equal, index.Reshape(ir.Static(1), k))
	down, up = rows.Sub(w.Gather(index)), hit.Where(b.G.Const(1, v, k), b.G.Const(0, v, k))
	if !b.Training() {
		down, up = b.Precompute("tokens."+m.Name+".down", down.Detach()), b.Precompute("tokens."+m.Name+".up", up.Detach())
	}
	return down, up
}

// tokenParams returns the trained rows [k, columns] and their token IDs i32 [k].
func (j *Injection) tokenParams(b *nn.Builder, t TokenPlacement) (rows, index graph.Tensor) {
	rows = b.Train(keyPrefix+t.Name+".token_adapter.trainable_tokens_delta", len(t.Tokens), t.columns())
	return rows, b.Constant(tokensPrefix+t.Name, t.numbers())
}

// numbers returns the token IDs, i32 [k].
func (t TokenPlacement) numbers() *tensor.Tensor {
	ids := make([]byte, 0, 4*len(t.Tokens))
	for _, id := range t.Tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
	}
	return &tensor.Tensor{DType: tensor.I32, Shape: []int{len(t.Tokens)}, Data: ids}
}

var _ nn.Adapter = (*Injection)(nil)
