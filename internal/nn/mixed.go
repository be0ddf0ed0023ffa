package nn

import (
	"encoding/binary"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// rows relates the rows of a layer's input to the rows of another input: a selection, or each
// row repeated.
type rows struct {
	parent *rows        // nil for all tokens
	index  graph.Tensor // i32, which of these they are, or
	times  int          // repeats of each row, adjacent to each other
}

// IndexSelect returns the builder of layers whose input rows are the rows index i32 [k] of the input
// of b's layers.
func (b *Builder) IndexSelect(index graph.Tensor) *Builder {
	c := *b
	c.rows = &rows{parent: b.rows, index: index}
	return &c
}

// RepeatInterleave returns the builder of layers whose input repeats each row of the input of b's layers
// n times, like torch's repeat_interleave.
func (b *Builder) RepeatInterleave(n int) *Builder {
	c := *b
	c.rows = &rows{parent: b.rows, times: n}
	return &c
}

// Part returns the builder of layers with one part of an adapter whose rows differ, or without
// an adapter if a is nil. The part's own params are in slot number i.
func (b *Builder) Part(i int, a Adapter) *Builder {
	c := *b
	c.slot, c.adapter = i, a
	return &c
}

// Adapters returns the number of the adapter of each input row, i32 [rows]; -1 means none. For
// tokens it is the input [Adapters].
func (b *Builder) Adapters() graph.Tensor {
	return b.byRow(b.rows, b.Input(Adapters, tensor.I32, b.Axis(Tokens)))
}

// AdaptersIn returns the entry of the adapter of each input row in a table that runs provide as
// the array called table, i32 [adapters]. It is -1 for rows without an adapter, and out of any
// range for adapters that the table does not have.
func (b *Builder) AdaptersIn(table string) graph.Tensor {
	return b.byRow(b.rows, b.input(Input{
		Name: table + " by token", Type: ir.Type{DType: tensor.I32, Shape: ir.Shape{b.Axis(Tokens)}},
		from: func(given Arrays) ([]byte, bool) {
			adapters, has := given.Array(Adapters)
			entries, ok := given.Array(table)
			out := make([]byte, 0, len(adapters))
			for i := 0; i < len(adapters); i += 4 {
				entry, n := uint32(1<<20), int(int32(binary.NativeEndian.Uint32(adapters[i:])))
				switch {
				case n < 0:
					entry = math.MaxUint32
				case 4*n < len(entries):
					entry = binary.NativeEndian.Uint32(entries[4*n:])
				}
				out = binary.NativeEndian.AppendUint32(out, entry)
			}
			return out, has && ok
		},
	}))
}

// byRow returns numbers of the input rows from those of the tokens.
func (b *Builder) byRow(r *rows, tokens graph.Tensor) graph.Tensor {
	if r == nil {
		return tokens
	}
	all := b.byRow(r.parent, tokens)
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
