package nn

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
)

// prepared is a value that is made of parameters alone, and the param that it is
// read from.
type prepared struct {
	name  string
	value graph.Tensor
}

// Prepare gives x, which must be made of parameters alone and have no gradient:
// nothing of a batch is in it, so that it changes with the parameters only. Where
// the builder was asked to (Options.Prepare) it is a param called name, and
// [Builder.Preparation] is what writes it.
func (b *Builder) Prepare(name string, x graph.Tensor) graph.Tensor {
	if !b.prepare || !x.Valid() {
		return x
	}
	name = b.slot + name
	if !slices.ContainsFunc(b.prepared, func(p prepared) bool { return p.name == name }) {
		b.prepared = append(b.prepared, prepared{name, x})
	}
	return b.G.Param(name, x.Type().DType, x.Type().Shape...)
}

// Preparation is the program that writes what [Builder.Prepare] gave names, or nil
// if that is nothing. It runs before the programs that read it, and again whenever
// the parameters have changed.
func (b *Builder) Preparation() *graph.Program {
	if len(b.prepared) == 0 {
		return nil
	}
	p := b.G.Program()
	for _, v := range b.prepared {
		p.Update(v.name, v.value)
	}
	return p
}
