package lora

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Params adds A and B to a graph as trainable values, the same ones that Apply and
// Linear use. They are read at each evaluation of the graph. The matrices of a mapped
// layer are first copied to memory.
func (l *Layer) Params(g *graph.Graph) []graph.Tensor {
	if err := l.check(); err != nil {
		return []graph.Tensor{g.Fail(err), g.Fail(err)}
	}
	if l.view[0] != nil {
		l.A, l.B, l.view = slices.Clone(l.A), slices.Clone(l.B), [2]*safetensors.View{}
	}
	a, err := float32Tensor(l.A, l.Rank, l.In)
	if err != nil {
		return []graph.Tensor{g.Fail(err), g.Fail(err)}
	}
	b, err := float32Tensor(l.B, l.Out, l.Rank)
	if err != nil {
		return []graph.Tensor{g.Fail(err), g.Fail(err)}
	}
	return []graph.Tensor{g.Value(a), g.Value(b)}
}

// Apply returns Scale·dropout(x) Aᵀ Bᵀ in the graph of x [..., in]; leading axes are
// rows. key is the random key for dropout (see [graph.Graph.Key]), or the zero Tensor
// except in training.
func (l *Layer) Apply(x, key graph.Tensor) graph.Tensor {
	h, b, ok := l.down(x, key)
	if !ok {
		return h
	}
	return h.MatMulT(b).Scale(float64(l.Scale()))
}

// Linear returns x Wᵀ + bias plus this layer, as one product, for the frozen weight w
// [out, in] of x's graph; bias may be the zero Tensor.
func (l *Layer) Linear(x, w, bias, key graph.Tensor) graph.Tensor {
	h, b, ok := l.down(x, key)
	if !ok {
		return h
	}
	return x.LoRA(w, bias, h, b, float64(l.Scale()))
}

// down returns h = dropout(x) Aᵀ, and B. If ok is false, h is not a value of x's graph.
func (l *Layer) down(x, key graph.Tensor) (h, b graph.Tensor, ok bool) {
	if !x.Valid() {
		return x, b, false
	}
	g := x.Graph()
	h = g.Of(0)
	ab := l.Params(g)
	if g.Err() != nil {
		return h, b, false
	}
	s := x.Type().Shape
	if len(s) == 0 || s[len(s)-1] != ir.Static(l.In) {
		g.Fail(fmt.Errorf("lora layer of %d→%d: x %v, expected it to end in %d", l.In, l.Out, s, l.In))
		return h, b, false
	}
	var d ir.DropoutAttr
	if key.Valid() {
		d = ir.DropoutAttr{P: l.Dropout, Stream: l.Stream}
	}
	return x.LoRADown(ab[0], key, d), ab[1], true
}
