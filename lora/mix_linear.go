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
	x           *Mix
	b           *nn.Builder
	m           nn.Module
	in, w, bias graph.Tensor // bias is f32, or the zero Tensor

	// By adapter: its weight and bias, changed or not, and the target if it targets the
	// layer.
	weights, biases []graph.Tensor
	targets         []*Target
}

func newMixedLinear(x *Mix, b *nn.Builder, m nn.Module, in, w, bias graph.Tensor) *mixedLinear {
	n := len(x.parts)
	l := &mixedLinear{x: x, b: b, m: m, in: in, w: w, bias: bias, weights: make([]graph.Tensor, n), biases: make([]graph.Tensor, n), targets: make([]*Target, n)}
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
		if _, head := j.tokens[m.Name]; head {
			l.biases[i] = graph.Tensor{}
		} else if t, ok := j.targets[m.Name]; ok {
			l.targets[i] = &t
		}
	}
	return l
}

// emit uses x first for A and then for the weight, as the graph of a single adapter
// does, since gradients are accumulated in the opposite order.
func (l *mixedLinear) emit() graph.Tensor {
	up := l.down()
	return l.addLoraBias(l.stretch(up(l.base())))
}

// base returns the layer without LoRA, computed with the weight and bias of each row.
// DoRA adds its bias last.
func (l *mixedLinear) base() graph.Tensor {
	first, differ := make([]graph.Tensor, len(l.biases)), false
	for i, bias := range l.biases {
		if t := l.targets[i]; t == nil || !t.DoRA {
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
	downs, up graph.RowsWeights
	numbers   []int // of the adapters
	scales    []float32
}

// down computes the products with A of all adapters; the function up adds their
// products with B to y.
func (l *mixedLinear) down() (up func(y graph.Tensor) graph.Tensor) {
	var adds []func(graph.Tensor) graph.Tensor
	for _, f := range l.factors() {
		x, index := l.in, l.x.places(l.b, f.numbers)
		if f.drop > 0 {
			x = x.Dropout(l.b.Key(), ir.DropoutAttr{P: f.drop, Stream: nn.Stream(l.m.Name)})
		}
		f.up.Out, f.up.Scale = l.m.Out, constants(l.b, "adapters.scales", f.scales)
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
	for i, j := range l.x.parts {
		if j == nil {
			continue
		}
		down, up, scale, ok := j.factors(l.b.Part(i, j), l.m, l.weights[i])
		if !ok {
			continue
		}
		drop := 0.0
		if t := l.targets[i]; t != nil && l.b.Training() {
			drop = t.Dropout
		}
		at := slices.IndexFunc(all, func(f *factored) bool { return f.drop == drop })
		if at < 0 {
			at = len(all)
			all = append(all, &factored{drop: drop})
		}
		f := all[at]
		f.downs.Matrices, f.up.Matrices = append(f.downs.Matrices, down), append(f.up.Matrices, up)
		f.numbers, f.scales = append(f.numbers, i), append(f.scales, float32(scale))
	}
	return all
}

// stretch multiplies rows by the g of DoRA, and adds their bias.
func (l *mixedLinear) stretch(y graph.Tensor) graph.Tensor {
	gs, biases, some := make([]graph.Tensor, len(l.targets)), make([]graph.Tensor, len(l.targets)), false
	for i, t := range l.targets {
		if t == nil || !t.DoRA {
			continue
		}
		some = true
		j, b := l.x.parts[i], l.b.Part(i, l.x.parts[i])
		down, up, _, _ := j.factors(b, l.m, l.weights[i])
		gs[i], biases[i] = j.stretch(b, *t, l.weights[i], down, up), l.biases[i]
	}
	if !some {
		return y
	}
	y = y.Mul(l.table(gs, graph.Tensor{}, 1))
	if l.bias.Valid() {
		y = y.Add(l.table(biases, graph.Tensor{}, 0))
	}
	return y
}

// addLoraBias adds the biases of B.
func (l *mixedLinear) addLoraBias(y graph.Tensor) graph.Tensor {
	biases, some := make([]graph.Tensor, len(l.targets)), false
	for i, t := range l.targets {
		if t != nil && t.LoraBias && !t.DoRA {
			biases[i], some = loraBias(l.b.Part(i, l.x.parts[i]), *t), true
		}
	}
	if !some {
		return y
	}
	return y.Add(l.table(biases, graph.Tensor{}, 0))
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
