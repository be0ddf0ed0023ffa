package sentence

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the inputs of embeddings, in addition to the inputs of the model, and of the axis of texts. [Mark] sets
// them.
const (
	Texts      = "texts"
	FirstToken = "first_token" // i32 [texts]
	LastToken  = "last_token"  // i32 [texts]
	TextOf     = "text_of"     // i32 [tokens]: index of the token's text
)

// Mark adds the inputs of embeddings to a batch.
func Mark(b *data.Batch) {
	n := b.Rows()
	first, last, of := make([]int32, n), make([]int32, n), make([]int32, len(b.Tokens()))
	for i := range n {
		first[i], last[i] = b.Starts[i], b.Starts[i+1]-1
		for j := first[i]; j <= last[i]; j++ {
			of[j] = int32(i)
		}
	}
	b.SetInts(FirstToken, first)
	b.SetInts(LastToken, last)
	b.SetInts(TextOf, of)
}

// Vectors emits the embeddings of texts [texts, size] from the states of their tokens [tokens, d]. No text may be
// longer than longest.
func (t *Transform) Vectors(b *nn.Builder, states graph.Tensor, longest int) graph.Tensor {
	if !states.Valid() {
		return states
	}
	texts := b.Axis(Texts)
	p := &pooling{b: b, states: states, texts: texts,
		first: b.Input(FirstToken, tensor.I32, texts), last: b.Input(LastToken, tensor.I32, texts)}
	var pooled []graph.Tensor
	for _, mode := range t.Pooling {
		pooled = append(pooled, p.pool(mode, longest))
	}
	x := pooled[0]
	if len(pooled) > 1 {
		x = graph.Concat(1, pooled...)
	}
	for i, s := range t.Steps {
		if s.Dense != nil {
			x = s.Dense.apply(b, x, i)
		} else {
			x = Normalize(x)
		}
	}
	return x
}

// pooling computes one embedding from the token states of each text.
type pooling struct {
	b           *nn.Builder
	states      graph.Tensor // [tokens, d]
	texts       ir.Dim
	first, last graph.Tensor // i32 [texts]
	total       graph.Tensor // sum of the states of each text, once computed
}

func (p *pooling) pool(mode Mode, longest int) graph.Tensor {
	switch mode {
	case First:
		return p.states.Gather(p.first)
	case Last:
		return p.states.Gather(p.last)
	case Max:
		return p.largest(longest).Gather(p.first)
	case Mean:
		return p.sum().Mul(p.lengths().Apply(ir.Reciprocal))
	case MeanRoot:
		return p.sum().Mul(p.lengths().Apply(ir.Rsqrt))
	case WeightedMean:
		n := p.states.Type().Shape[0]
		rank := p.b.Input(nn.Positions, tensor.I32, n).Cast(tensor.F32).AddScalar(1)
		lengths := p.lengths()
		total := lengths.Mul(lengths.AddScalar(1)).Scale(0.5)
		return p.add(p.states.Mul(rank.Reshape(n, ir.Static(1)))).Mul(total.Apply(ir.Reciprocal))
	}
	return p.b.G.Fail(fmt.Errorf("sentence: %w: pooling_mode %q; supported: %s", ErrUnsupported, mode, joined(Modes())))
}

// add sums the rows of each text.
func (p *pooling) add(rows graph.Tensor) graph.Tensor {
	of := p.b.Input(TextOf, tensor.I32, rows.Type().Shape[0])
	return p.b.G.Of(p.b.G.IR().ScatterAddRows(rows.Value(), of.Value(), p.texts))
}

func (p *pooling) sum() graph.Tensor {
	if !p.total.Valid() {
		p.total = p.add(p.states)
	}
	return p.total
}

// lengths returns the number of tokens of each text, f32 [texts, 1].
func (p *pooling) lengths() graph.Tensor {
	return p.last.Sub(p.first).Cast(tensor.F32).AddScalar(1).Reshape(p.texts, ir.Static(1))
}

// largest returns, at the first token of each text, the element-wise maximum over all its tokens. Each token takes the
// maximum with the tokens 1, 2, 4, 8, … further in its text.
func (p *pooling) largest(longest int) graph.Tensor {
	g := p.b.G.IR()
	n := p.states.Type().Shape[0]
	i32 := func(x int) ir.Value { return g.Const(float64(x), ir.Type{DType: tensor.I32, Shape: ir.Shape{}}) }
	final := g.Add(p.b.Input(nn.End, tensor.I32, n).Value(), i32(-1))
	place, x := g.Iota(0, ir.Shape{n}), p.states
	for reach := 1; reach < longest; reach *= 2 {
		later := g.Binary(ir.Min, g.Add(place, i32(reach)), final)
		x = p.b.G.Of(g.Binary(ir.Max, x.Value(), x.Gather(p.b.G.Of(later)).Value()))
	}
	return x
}

// Normalize scales the rows of x to length 1; rows of zeros are unchanged.
func Normalize(x graph.Tensor) graph.Tensor {
	if !x.Valid() {
		return x
	}
	rows, g := x.Type().Shape[0], x.Graph()
	length := x.Mul(x).Sum(1).Reshape(rows, ir.Static(1)).Apply(ir.Sqrt)
	least := g.IR().Const(1e-12, ir.Type{DType: tensor.F32, Shape: ir.Shape{}})
	return x.Mul(g.Of(g.IR().Binary(ir.Max, length.Value(), least)).Apply(ir.Reciprocal))
}

// activations are the activation functions of a Dense module.
var activations = map[string]func(graph.Tensor) graph.Tensor{
	"Identity": func(x graph.Tensor) graph.Tensor { return x },
	"Tanh":     func(x graph.Tensor) graph.Tensor { return x.Apply(ir.Tanh) },
	"Sigmoid":  func(x graph.Tensor) graph.Tensor { return x.Apply(ir.Sigmoid) },
	"GELU":     func(x graph.Tensor) graph.Tensor { return x.Activate(ir.GELU) },
}

// apply emits the layer, which is step number i.
func (d *Dense) apply(b *nn.Builder, x graph.Tensor, i int) graph.Tensor {
	if !x.Valid() {
		return x
	}
	if is := x.Type().Last().N; is != d.In {
		return b.G.Fail(fmt.Errorf("sentence: %w: %s: in_features %d, and its input has %d", ErrFile, d.Name, d.In, is))
	}
	constant := func(what string, values []float32, shape ...int) graph.Tensor {
		t, err := tensor.FromFloat32s(values, shape...)
		if err != nil {
			return b.G.Fail(err)
		}
		return b.Constant(fmt.Sprintf("sentence.%d.%s", i, what), &t)
	}
	var bias graph.Tensor
	if d.Bias != nil {
		bias = constant("bias", d.Bias, d.Out)
	}
	return activations[d.Activation](x.Linear(constant("weight", d.Weight, d.Out, d.In), bias))
}

// Longest returns the number of tokens to which texts are truncated, for a model with the limit model.
func (t *Transform) Longest(model int) int {
	if t.MaxLength == 0 {
		return model
	}
	return min(t.MaxLength, model)
}
