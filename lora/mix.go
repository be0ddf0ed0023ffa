package lora

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Mix is the part of several adapters in one graph, an [nn.Adapter]: each row of a
// batch has one of them, or none, as [nn.Builder.Adapters] says. A row gets what the
// graph with its adapter alone would give it, in the same order of operations.
//
// A layer is computed once for all rows, and products by row add what the adapters add
// to it, each at the cost of its own rank and rows. Weights that stand in for those of
// the model multiply the rows that have them. Norms and embeddings are computed for all
// rows by the parameters of each adapter that has some, and chosen.
type Mix struct {
	parts []*Injection
}

// NewMix mixes adapters, which are numbered as they are given; nil is one that adds
// nothing. What number i has of its own is in slot i of the graph.
func NewMix(parts ...*Injection) *Mix { return &Mix{parts} }

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

// some are the numbers of the adapters for which is is true.
func (x *Mix) some(is func(*Injection) bool) (numbers []int) {
	for i, j := range x.parts {
		if j != nil && is(j) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func (x *Mix) with(m nn.Module) []int { return x.some(func(j *Injection) bool { return j.has(m) }) }

// Param leaves parameters as they are: rows differ in theirs.
func (x *Mix) Param(_ *nn.Builder, _ nn.Module, _ string, frozen graph.Tensor) graph.Tensor {
	return frozen
}

// Embedding has nothing to add to what Choose gives.
func (x *Mix) Embedding(*nn.Builder, nn.Module, graph.Tensor, graph.Tensor) (graph.Tensor, bool) {
	return graph.Tensor{}, false
}

// Choose is a layer that costs little, computed for all rows by the parameters of each
// adapter that has some: every row is that of its own.
func (x *Mix) Choose(b *nn.Builder, m nn.Module, layer func(*nn.Builder) graph.Tensor) (graph.Tensor, bool) {
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

// Stack adds what each adapter adds, to its own rows.
func (x *Mix) Stack(b *nn.Builder, m nn.Module, in, index graph.Tensor, ys ...graph.Tensor) []graph.Tensor {
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

// Linear is the layer with what the adapters of its rows add.
func (x *Mix) Linear(b *nn.Builder, m nn.Module, in, w, bias graph.Tensor) (graph.Tensor, bool) {
	with := x.with(m)
	if len(with) == 0 || !in.Valid() || !w.Valid() {
		return in, len(with) > 0
	}
	for _, i := range with {
		if t, ok := x.parts[i].targets[m.Name]; ok && b.Training() && t.Dropout > 0 && (t.DoRA || !b.RowKeys()) {
			return b.G.Fail(fmt.Errorf("lora: %w: dropout of adapter %d of several in one batch", ErrUnsupported, i)), true
		}
	}
	return newMixedLinear(x, b, m, in, w, bias).emit(), true
}

// number is that of an adapter, as an i32.
func (x *Mix) number(b *nn.Builder, i int) graph.Tensor {
	return b.G.Of(b.G.IR().Const(float64(i), i32))
}

// i32 is the type of the number of an adapter.
var i32 = ir.Type{DType: tensor.I32, Shape: ir.Shape{}}

// places are the numbers of rows among the adapters in numbers, i32 [rows]: -1 for those
// of others.
func (x *Mix) places(b *nn.Builder, numbers []int) graph.Tensor {
	places := []float32{-1}
	for i := range x.parts {
		places = append(places, float32(slices.Index(numbers, i)))
	}
	return x.lookup(b, places)
}

// lookup gives each row the number of its adapter in a list, i32 [rows]; the first one
// is for rows without an adapter. A run whose rows have another adapter fails.
func (x *Mix) lookup(b *nn.Builder, list []float32) graph.Tensor {
	own := b.Adapters()
	if !own.Valid() {
		return own
	}
	own = own.Compare(ir.Less, x.number(b, 0)).Where(x.number(b, 0), own.Add(x.number(b, 1)))
	table := constants(b, "adapters.places", list).Reshape(ir.Static(len(list)), ir.Static(1))
	return table.Gather(own).Reshape(own.Type().Shape[0]).Cast(i32.DType)
}

// constants are a table of numbers, f32 [n], which the host makes.
func constants(b *nn.Builder, what string, values []float32) graph.Tensor {
	name := what + strings.ReplaceAll(fmt.Sprint(values), " ", ",")
	return b.Derived(nn.Derived{Name: name, Shape: []int{len(values)}, Values: func(int) []float32 { return values }})
}

var _ nn.Adapter = (*Mix)(nil)
