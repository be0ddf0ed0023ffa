package generate

import (
	"context"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// Read begins a text that starts with ids, in chunks of the generator's size,
// and gives the logits of its last token.
func (g *Generator) Read(ctx context.Context, ids []int32) ([]float32, error) {
	g.keep(ids)
	if err := g.reserve(ctx, len(ids)); err != nil {
		return nil, err
	}
	return g.read(ctx, ids)
}

// Programs are what reads a prompt and what decodes a token.
func (g *Generator) Programs() []*ir.Program {
	return []*ir.Program{g.programs[0].Plan(), g.programs[1].Plan()}
}

// Capacity is the number of tokens that the tables have room for.
func (g *Generator) Capacity() int { return g.cache.Rows() }

// Push and Flush are the stopper on its own.
func StopAt(stops ...string) (push func(string) (string, bool), flush func() string) {
	s := &stopper{stops: stops}
	return s.push, s.flush
}
