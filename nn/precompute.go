package nn

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
)

// precomputed is a value that is made of parameters alone, and the param that it is
// read from.
type precomputed struct {
	slot  int
	name  string
	value graph.Tensor
}

// Precompute gives x, which must be made of parameters alone and have no gradient:
// nothing of a batch is in it, so that it changes with the parameters only. Where
// the builder was asked to (Options.Precompute) it is a param called name, and
// [Builder.Precomputation] is what writes it.
func (b *Builder) Precompute(name string, x graph.Tensor) graph.Tensor {
	if !b.precompute || !x.Valid() {
		return x
	}
	name = b.own(name)
	if !slices.ContainsFunc(b.precomputed, func(p precomputed) bool { return p.name == name }) {
		b.precomputed = append(b.precomputed, precomputed{b.slot, name, x})
	}
	return b.G.Param(name, x.Type().DType, x.Type().Shape...)
}

// Precomputation is the program that writes what [Builder.Precompute] gave names in a
// slot, or nil if that is nothing. It runs before the programs that read it, and again
// whenever the parameters in the slot have changed.
func (b *Builder) Precomputation(slot int) (p *graph.Program) {
	for _, v := range b.precomputed {
		if v.slot != slot {
			continue
		}
		if p == nil {
			p = b.G.Program()
		}
		p.Update(v.name, v.value)
	}
	return p
}
