package lora

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// mixedLinear is a linear layer whose rows use several adapters. Each step applies a
// step of [Injection.Linear] to the rows that need it, and leaves the others unchanged.
type mixedLinear struct {
	x           *MultiAdapter
	b           *nn.Builder
	m           nn.Module
	in, w, bias graph.Tensor // bias is f32, or the zero Tensor

	// By adapter: the weight and bias that its rows use, and its contribution or nil.
	weights, biases []graph.Tensor
	terms           []*terms
	whole           []int // adapters without terms, which compute the layer for all rows
}

func newMixedLinear(x *MultiAdapter, b *nn.Builder, m nn.Module, in, w, bias graph.Tensor) *mixedLinear {
	n := len(x.parts)
	l := &mixedLinear{x: x, b: b, m: m, in: in, w: w, bias: bias, weights: make([]graph.Tensor, n), biases: make([]graph.Tensor, n), terms: make([]*terms, n)}
	if bias.Valid() {
		l.bias = bias.Cast(tensor.F32)
	}
	for i, j := range x.parts {
		l.weights[i], l.biases[i] = w, l.bias
		if j == nil {
			continue
		}
		part := b.Part(i, j)
		l.weights[i] = j.Param(part, m, m.Name+".weight", w)
		if bias.Valid() && j.ownsBias(m) {
			l.biases[i] = j.Param(part, m, m.Name+".bias", bias)
		}
	}
	for i, j := range x.parts {
		if j == nil {
			continue
		}
		part := b.Part(i, j)
		if t, ok := j.tokens[m.Name]; ok {
			down, up := j.tokenFactors(part, m, t, l.weights[i])
			l.terms[i], l.biases[i] = &terms{down: down, up: up, scale: 1}, graph.Tensor{}
		} else if a, ok := j.layer(part, m, in, l.weights[i], l.biases[i]); ok {
			if x, ok := a.terms(); ok {
				l.terms[i] = &x
			} else {
				l.whole = append(l.whole, i)
			}
		}
	}
	return l
}

// emit uses x first for A and then for the weight, as the graph of a single adapter
// does, since gradients are accumulated in the opposite order.
func (l *mixedLinear) emit() graph.Tensor {
	up := l.down()
	return l.selectWhole(l.shift(l.gain(up(l.base()))))
}

// base returns the layer without adapters, computed with the weight and bias of each row.
// Rows with a gain add their bias after it.
func (l *mixedLinear) base() graph.Tensor {
	first, differ := make([]graph.Tensor, len(l.biases)), false
	for i, bias := range l.biases {
		if x := l.terms[i]; x == nil || x.gain == nil {
			first[i] = bias
		}
		differ = differ || first[i] != l.bias
	}
	replaced := l.x.some(func(j *Injection) bool { return j.replaces(l.m) })
	bias, begin := l.bias, graph.Tensor{}
	if bias.Valid() && (differ || len(replaced) > 0) {
		bias, begin = graph.Tensor{}, l.table(first, l.bias, 0) // of the products, instead of the bias
	}
	y := l.b.G.Gemm([]ir.Product{{A: l.in.Value(), B: l.w.Value(), TB: true, Alpha: 1}}, bias, begin)
	if len(replaced) == 0 {
		return y
	}
	own := graph.RowsWeights{Out: l.m.Out}
	for _, i := range replaced {
		own.Matrices = append(own.Matrices, l.weights[i])
	}
	index := l.x.places(l.b, replaced)
	if !index.Valid() {
		return index
	}
	mine := index.Compare(ir.GreaterEqual, l.x.number(l.b, 0)).Reshape(index.Type().Shape[0], ir.Static(1))
	return mine.Where(l.in.RowsGemm(index, own, begin), y)
}

// factored holds the factors of adapters with the same dropout probability, which read
// the same inputs.
type factored struct {
	drop      float64
	open      bool // the factors are those at open positions
	downs, up graph.RowsWeights
	numbers   []int // of the adapters
	scales    []float32
}

// down computes the products with A of all adapters; the function up adds their
// products with B to y.
func (l *mixedLinear) down() (up func(y graph.Tensor) graph.Tensor) {
	var adds []func(graph.Tensor) graph.Tensor
	for _, f := range l.factors() {
		x := l.in
		index, scales := l.choice(f)
		if f.drop > 0 {
			x = x.Dropout(l.b.Key(), ir.DropoutAttr{P: f.drop, Stream: nn.Stream(l.m.Name)})
		}
		f.up.Out, f.up.Scale = l.m.Out, scales
		h := x.RowsGemm(index, f.downs, graph.Tensor{})
		adds = append(adds, func(y graph.Tensor) graph.Tensor { return h.RowsGemm(index, f.up, y) })
	}
	return func(y graph.Tensor) graph.Tensor {
		for _, add := range adds {
			y = add(y)
		}
		return y
	}
}

// factors returns the factors of all adapters of this layer, grouped by dropout.
func (l *mixedLinear) factors() (all []*factored) {
	if l.x.open(l.m) {
		all = append(all, l.openFactors())
	}
	for i, x := range l.terms {
		if x == nil {
			continue
		}
		at := slices.IndexFunc(all, func(f *factored) bool { return f.drop == x.drop && !f.open })
		if at < 0 {
			at = len(all)
			all = append(all, &factored{drop: x.drop})
		}
		f := all[at]
		f.downs.Matrices, f.up.Matrices = append(f.downs.Matrices, x.down), append(f.up.Matrices, x.up)
		f.numbers, f.scales = append(f.numbers, i), append(f.scales, float32(x.scale))
	}
	return all
}

// gain multiplies rows by the gain of their adapter, and adds their bias.
func (l *mixedLinear) gain(y graph.Tensor) graph.Tensor {
	gains, biases, some := make([]graph.Tensor, len(l.terms)), make([]graph.Tensor, len(l.terms)), false
	for i, x := range l.terms {
		if x != nil && x.gain != nil {
			gains[i], biases[i], some = x.gain(), l.biases[i], true
		}
	}
	if !some {
		return y
	}
	y = y.Mul(l.table(gains, graph.Tensor{}, 1))
	if l.bias.Valid() {
		y = y.Add(l.table(biases, graph.Tensor{}, 0))
	}
	return y
}

// shift adds the shift of each row's adapter.
func (l *mixedLinear) shift(y graph.Tensor) graph.Tensor {
	shifts, some := make([]graph.Tensor, len(l.terms)), false
	for i, x := range l.terms {
		if x != nil && x.shift != nil {
			shifts[i], some = x.shift(), true
		}
	}
	if !some {
		return y
	}
	return y.Add(l.table(shifts, graph.Tensor{}, 0))
}

// selectWhole replaces the rows of adapters without terms by the layer of each of them.
func (l *mixedLinear) selectWhole(y graph.Tensor) graph.Tensor {
	for _, i := range l.whole {
		own, j := l.b.Adapters(), l.x.parts[i]
		a, _ := j.layer(l.b.Part(i, j), l.m, l.in, l.weights[i], l.biases[i])
		mine := a.t.adapter().linear(a)
		if !own.Valid() || !mine.Valid() {
			return mine
		}
		y = own.Compare(ir.Equal, l.x.number(l.b, i)).Reshape(own.Type().Shape[0], ir.Static(1)).Where(mine, y)
	}
	return y
}

// table returns the vector of each row's adapter, f32 [rows, out]. A vector that is
// missing is replaced by fill in all columns. Rows without an adapter get other, or
// fill if other is missing.
func (l *mixedLinear) table(vectors []graph.Tensor, other graph.Tensor, fill float64) graph.Tensor {
	one, out := ir.Static(1), ir.Static(l.m.Out)
	all, known := []graph.Tensor{l.b.G.Const(fill, one, out)}, map[graph.Tensor]int{{}: 0}
	var list []float32
	for _, v := range append([]graph.Tensor{other}, vectors...) {
		if _, ok := known[v]; !ok {
			known[v] = len(all)
			all = append(all, v.Reshape(one, out))
		}
		list = append(list, float32(known[v]))
	}
	return graph.Concat(0, all...).Gather(l.x.lookup(l.b, list))
}
