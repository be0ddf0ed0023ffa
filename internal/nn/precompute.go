package nn

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
)

// precomputed is a value that depends only on parameters, and the param that it is read from.
type precomputed struct {
	slot  int
	name  string
	value graph.Tensor
}

// Precompute returns x, which must depend only on parameters and have no gradient. It does not
// depend on the batch, so it changes only with the parameters. With Options.Precompute it
// returns a param called name instead, which the program of [Builder.Precomputation] writes.
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

// Precomputation returns the program that writes the params of [Builder.Precompute] in a slot,
// or nil if there are none. Run it before the programs that read them, and again whenever the
// parameters in the slot change.
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
