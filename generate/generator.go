// Package generate runs models that are not trained any more: a [Generator]
// continues a text token by token, with a cache of keys and values; a [Scorer]
// gives logits, hidden states and losses of whole texts.
package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
)

// defaultChunk is the number of prompt tokens that are read in one run: enough
// to make matrix products out of reading the weights once for each token.
const defaultChunk = 256

// minCapacity is the smallest number of tokens that a cache has room for.
const minCapacity = 256

// Options fix what a generator can do.
type Options struct {
	// MaxLength bounds prompt and answer together, in tokens. 0 is what the
	// model can take, see [model.Config.MaxLength].
	MaxLength int
	// PrefillChunk is the number of prompt tokens that are read at a time; 0
	// is 256.
	PrefillChunk int
}

// Generator continues texts with one model. It keeps the keys and values of
// its last text: of the next prompt only what differs from that text is read.
// It is not safe for concurrent use.
type Generator struct {
	host      *host
	maxLength int
	chunk     int

	prefill, decode *exec.Executable // over the same tables
	tables          *tables
	cached          []int32 // the tokens whose keys and values are in the tables
	longest         int     // the longest text that they were made for
	inputs          []nn.Input
	derived         []nn.Derived
	length          int // of the texts that the derived tables on the device are for; 0: none are there

	given  data.Batch // of a run
	logits []float32
}

// New prepares a generator; state is an adapter, or nil. m must stay open
// until the generator is closed. Errors: ErrTooLong if o.MaxLength is more than
// the model can take, and those of the device.
func New(ctx context.Context, dev backend.Device, m *model.Model, state *lora.State, o Options) (*Generator, error) {
	limit := m.Config.MaxLength()
	switch {
	case o.MaxLength < 0 || o.PrefillChunk < 0:
		return nil, fmt.Errorf("generate: %w: max length %d and prefill chunk %d, expected 0 or more", ErrOption, o.MaxLength, o.PrefillChunk)
	case o.MaxLength > limit:
		return nil, fmt.Errorf("generate: %w: a length of %d, the model takes %d (max_position_embeddings)", ErrTooLong, o.MaxLength, limit)
	}
	g := &Generator{maxLength: o.MaxLength, chunk: o.PrefillChunk, logits: make([]float32, m.Config.VocabSize)}
	if g.maxLength == 0 {
		g.maxLength = limit
	}
	if g.chunk == 0 {
		g.chunk = defaultChunk
	}
	g.chunk = min(g.chunk, g.maxLength)
	var err error
	if g.host, err = newHost(dev, m, state); err != nil {
		return nil, err
	}
	if err := g.reserve(ctx, 1); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// MaxLength is the number of tokens that prompt and answer may have together.
func (g *Generator) MaxLength() int { return g.maxLength }

// Bytes is the device memory of the weights, of the adapter and of the cache.
func (g *Generator) Bytes() int {
	return g.host.store.Bytes() + g.host.tuned.store.Bytes() + g.tables.store.Bytes()
}

// Reset forgets the last text.
func (g *Generator) Reset() { g.cached, g.longest = g.cached[:0], 0 }

// Close frees the device's memory.
func (g *Generator) Close() {
	g.drop(g.prefill, g.decode)
	g.prefill, g.decode = nil, nil
	g.tables.free()
	g.host.free()
}

func (g *Generator) drop(es ...*exec.Executable) {
	for _, e := range es {
		if e != nil {
			e.Close()
		}
	}
}

// reserve makes room for so many tokens. Tables have a power of two of rows, so
// that a chat that grows compiles a few times only, and what was read stays.
func (g *Generator) reserve(ctx context.Context, tokens int) error {
	if g.tables != nil && tokens <= g.tables.capacity {
		return nil
	}
	capacity := minCapacity
	for capacity < tokens {
		capacity *= 2
	}
	t := newTables(g.host.dev, min(capacity, g.maxLength))
	prefill, err := g.compile(ctx, g.chunk, t)
	if err != nil {
		t.free()
		return err
	}
	decode, err := g.compile(ctx, 1, t)
	if err == nil {
		err = t.copyFrom(ctx, g.tables, len(g.cached))
	}
	if err != nil {
		g.drop(prefill, decode)
		t.free()
		return err
	}
	g.drop(g.prefill, g.decode)
	g.tables.free()
	g.prefill, g.decode, g.tables = prefill, decode, t
	g.cached = slices.Grow(g.cached, t.capacity-len(g.cached))
	return nil
}

// compile compiles runs of at most max tokens over the tables.
func (g *Generator) compile(ctx context.Context, max int, t *tables) (*exec.Executable, error) {
	return g.host.compile(ctx, g.program(max, t, g.host.tuned), t)
}

// program is a run of at most max tokens over the tables, with an adapter.
func (g *Generator) program(max int, t *tables, adapter *tuning) *program {
	cache := &nn.Cache{Max: t.capacity}
	p := g.host.begin(max, cache, adapter)
	t.describe(cache)
	p.Result(logitsResult, p.last())
	for _, e := range cache.Entries {
		p.Update(e.Param, e.Updated)
	}
	g.inputs, g.derived = p.b.Inputs(), p.b.Tables()
	return p
}

// keep drops from the cache what does not begin prompt. The last token of a
// prompt is always read, since its logits are needed.
func (g *Generator) keep(prompt []int32) {
	n := 0
	for n < len(g.cached) && n < len(prompt)-1 && g.cached[n] == prompt[n] {
		n++
	}
	longest := max(g.longest, len(prompt))
	if slices.ContainsFunc(g.derived, func(t nn.Derived) bool { return t.Changes() && longest > t.Until }) {
		n = 0 // those keys were turned by other angles
	}
	g.cached = g.cached[:n]
	if n == 0 {
		g.longest = 0
	}
}

// read brings prompt, of which the cache holds the beginning, into the cache
// and gives the logits of its last token.
func (g *Generator) read(ctx context.Context, prompt []int32) ([]float32, error) {
	for len(g.cached) < len(prompt) {
		at := len(g.cached)
		if err := g.run(ctx, prompt[at:min(at+g.chunk, len(prompt))], len(prompt)); err != nil {
			return nil, err
		}
	}
	return g.logits, g.host.store.GetFloat32s(ctx, logitsResult, g.logits)
}

// run reads a few tokens behind those in the cache. length is that of the text
// by which derived tables are chosen: of the whole prompt, or up
// to the token that is being generated.
func (g *Generator) run(ctx context.Context, ids []int32, length int) error {
	e, at := g.prefill, len(g.cached)
	if len(ids) == 1 {
		e = g.decode
	}
	if err := g.derive(ctx, length); err != nil {
		return err
	}
	in := &g.given
	in.Reset()
	in.AddAfter(ids, at)
	in.SetInt(nn.Offset, int32(at))
	in.SetInt(lastInput, int32(len(ids)-1))
	if err := g.host.store.Feed(ctx, e, g.inputs, in); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	if err := e.RunWait(ctx); err != nil {
		return err // rows behind those in use may have been written; nothing reads them
	}
	g.cached = append(g.cached, ids...)
	return nil
}

// derive brings the derived tables for a text of that length to the device.
func (g *Generator) derive(ctx context.Context, length int) error {
	g.longest = max(g.longest, length)
	changes := func(t nn.Derived) bool { return t.Changes() }
	if g.length != 0 && (g.length == length || !slices.ContainsFunc(g.derived, changes)) {
		return nil
	}
	if err := g.host.store.SetTables(ctx, g.derived, length); err != nil {
		return err
	}
	g.length = length
	return nil
}
