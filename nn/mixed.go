package nn

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// rows are what layers are given of others: some of them, or each several times.
type rows struct {
	of    *rows        // nil for all tokens
	index graph.Tensor // i32, which of these they are, or
	times int          // how often each of these is there, one behind the other
}

// Pick is the builder of layers that are given the rows index i32 [k] of what those of
// b are given.
func (b *Builder) Pick(index graph.Tensor) *Builder {
	c := *b
	c.rows = &rows{of: b.rows, index: index}
	return &c
}

// Times is the builder of layers that are given each row of b so often, one behind the
// other.
func (b *Builder) Times(n int) *Builder {
	c := *b
	c.rows = &rows{of: b.rows, times: n}
	return &c
}

// Part is the builder of layers with one of the parts of an adapter whose rows differ,
// or with none where a is nil. What the part has of its own is in slot number i.
func (b *Builder) Part(i int, a Adapter) *Builder {
	c := *b
	c.slot, c.adapter = i, a
	return &c
}

// Adapters says which of several adapters each row that layers are given has, i32
// [rows]; -1 is none. Of tokens it is the input [Adapters].
func (b *Builder) Adapters() graph.Tensor { return b.adaptersOf(b.rows) }

func (b *Builder) adaptersOf(r *rows) graph.Tensor {
	if r == nil {
		return b.Input(Adapters, tensor.I32, b.Axis(Tokens))
	}
	all := b.adaptersOf(r.of)
	if !all.Valid() {
		return all
	}
	n, one := all.Type().Shape[0], ir.Static(1)
	if r.times > 0 {
		k := ir.Static(r.times)
		each := b.G.IR().Broadcast(all.Reshape(n, one).Value(), ir.Shape{n, k})
		return b.G.Of(each).Reshape(ir.Dim{N: n.N * k.N, Var: n.Var})
	}
	if !r.index.Valid() {
		return r.index
	}
	picked := all.Cast(tensor.F32).Reshape(n, one).Gather(r.index) // exact: they are few
	return picked.Reshape(r.index.Type().Shape[0]).Cast(tensor.I32)
}
