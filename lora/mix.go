package lora

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// MultiAdapter is an [nn.Adapter] for several adapters in one graph: each row of a batch uses
// one of them, or none, as selected by [nn.Builder.Adapters]. A row gets the same
// result as in a graph with its adapter alone, by the same order of operations.
//
// Each layer is computed once for all rows. Row-wise matrix multiplications then add
// the adapters' contributions, each at the cost of its own rank and rows. Replaced base
// weights are multiplied only with the rows that use them. Norms and embeddings are
// computed for all rows with the parameters of each adapter that changes them, and the
// results are selected by row. So is a linear layer whose method has no [terms].
type MultiAdapter struct {
	parts []*Injection // nil at open positions

	sizes  []FactorType // of the open positions, the first parts; see [NewOpenMultiAdapter]
	plain  []*Injection // adapters at open positions
	arrays map[string][]byte
}

// NewMultiAdapter combines adapters, which are numbered by position; nil is an adapter without
// effect. Slot i of the graph holds the params of adapter i.
func NewMultiAdapter(parts ...*Injection) *MultiAdapter { return &MultiAdapter{parts: parts} }

// has reports whether the adapter adds something to a module, or has some of its
// parameters.
func (j *Injection) has(m nn.Module) bool {
	if j == nil {
		return false
	}
	_, target := j.targets[m.Name]
	_, tokens := j.tokens[m.Name]
	return target || tokens || j.replaces(m) || j.ownsBias(m)
}

// replaces reports whether the weight of a module is not that of the checkpoint.
func (j *Injection) replaces(m nn.Module) bool {
	_, saved := j.params[m.Name+".weight"]
	return saved || j.base[m.Name] != nil
}

// ownsBias reports whether the bias of a module is trained.
func (j *Injection) ownsBias(m nn.Module) bool {
	_, ok := j.params[m.Name+".bias"]
	return ok
}

// some returns the numbers of the adapters for which is returns true.
func (x *MultiAdapter) some(is func(*Injection) bool) (numbers []int) {
	for i, j := range x.parts {
		if j != nil && is(j) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func (x *MultiAdapter) with(m nn.Module) []int {
	return x.some(func(j *Injection) bool { return j.has(m) })
}

// Param implements [nn.Adapter]. It returns frozen, because rows may need different parameters;
// Choose handles them.
func (x *MultiAdapter) Param(_ *nn.Builder, _ nn.Module, _ string, frozen graph.Tensor) graph.Tensor {
	return frozen
}

// Embedding implements [nn.Adapter]. It returns false, because Choose has applied the adapters.
func (x *MultiAdapter) Embedding(*nn.Builder, nn.Module, graph.Tensor, graph.Tensor) (graph.Tensor, bool) {
	return graph.Tensor{}, false
}

// Choose implements [nn.Adapter]. It emits an inexpensive layer for all rows, once with the
// parameters of each adapter that changes it, and selects the result of each row by its adapter.
func (x *MultiAdapter) Choose(b *nn.Builder, m nn.Module, layer func(*nn.Builder) graph.Tensor) (graph.Tensor, bool) {
	with := x.with(m)
	if len(with) == 0 {
		return graph.Tensor{}, false
	}
	y, own := layer(b.Part(0, nil)), b.Adapters()
	if !y.Valid() || !own.Valid() {
		return y, true
	}
	shape := slices.Clone(y.Type().Shape)
	if n := own.Type().Shape[0]; shape[0] != n && shape[0] != ir.Static(1) {
		return b.G.Fail(fmt.Errorf("lora: %w: adapter %d of several in one batch has parameters of %q, whose rows are no tokens", ErrUnsupported, with[0], m.Name)), true
	}
	for i := range shape {
		shape[i] = ir.Static(1)
	}
	shape[0] = own.Type().Shape[0]
	own = own.Reshape(shape...)
	for _, i := range with {
		y = own.Compare(ir.Equal, x.number(b, i)).Where(layer(b.Part(i, x.parts[i])), y)
	}
	return y, true
}

// Stack implements [nn.Adapter] for routed experts. It adds the contribution of each adapter to the
// rows that use it.
func (x *MultiAdapter) Stack(b *nn.Builder, m nn.Module, in, index graph.Tensor, ys ...graph.Tensor) []graph.Tensor {
	with := x.with(m)
	if len(with) == 0 || !in.Valid() {
		return ys
	}
	own := b.Adapters()
	for _, i := range with {
		mine := own.Compare(ir.Equal, x.number(b, i)).Where(index, x.number(b, -1))
		ys = x.parts[i].Stack(b.Part(i, x.parts[i]), m, in, mine, ys...)
	}
	return ys
}

// Linear implements [nn.Adapter]. It emits the layer with the contribution of each row's adapter.
func (x *MultiAdapter) Linear(b *nn.Builder, m nn.Module, in, w, bias graph.Tensor) (graph.Tensor, bool) {
	with := x.with(m)
	if len(with) == 0 && !x.open(m) {
		return in, false
	}
	if !in.Valid() || !w.Valid() {
		return in, true
	}
	if b.Training() && len(x.sizes) > 0 {
		return b.G.Fail(fmt.Errorf("lora: %w: training with open positions", ErrUnsupported)), true
	}
	for _, i := range with {
		if t, ok := x.parts[i].targets[m.Name]; ok && b.Training() && t.Dropout > 0 && !b.RowKeys() {
			return b.G.Fail(fmt.Errorf("lora: %w: dropout of adapter %d of several in one batch", ErrUnsupported, i)), true
		}
	}
	return newMixedLinear(x, b, m, in, w, bias).emit(), true
}

// number returns the number of an adapter as an i32.
func (x *MultiAdapter) number(b *nn.Builder, i int) graph.Tensor {
	return b.G.Of(b.G.IR().Const(float64(i), i32))
}

// i32 is the type of the number of an adapter.
var i32 = ir.Type{DType: tensor.I32, Shape: ir.Shape{}}

// places returns each row's index in numbers by its adapter, i32 [rows]: -1 if the
// adapter is not in numbers.
func (x *MultiAdapter) places(b *nn.Builder, numbers []int) graph.Tensor {
	places := []float32{-1}
	for i := range x.parts {
		places = append(places, float32(slices.Index(numbers, i)))
	}
	return x.lookup(b, places)
}

// lookup maps the adapter of each row to its entry in list, i32 [rows]; the first entry
// is for rows without an adapter. A run with an adapter out of range fails.
func (x *MultiAdapter) lookup(b *nn.Builder, list []float32) graph.Tensor {
	own := b.Adapters()
	if !own.Valid() {
		return own
	}
	own = own.Compare(ir.Less, x.number(b, 0)).Where(x.number(b, 0), own.Add(x.number(b, 1)))
	table := constants(b, "adapters.places", list).Reshape(ir.Static(len(list)), ir.Static(1))
	return table.Gather(own).Reshape(own.Type().Shape[0]).Cast(i32.DType)
}

// constants returns a table of numbers, f32 [n], computed on the host.
func constants(b *nn.Builder, what string, values []float32) graph.Tensor {
	name := what + strings.ReplaceAll(fmt.Sprint(values), " ", ",")
	return b.Derived(nn.Derived{Name: name, Shape: []int{len(values)}, Values: func(int) []float32 { return values }})
}

var _ nn.Adapter = (*MultiAdapter)(nil)
