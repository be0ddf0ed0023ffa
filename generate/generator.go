// Package generate runs models that are not trained any more: a [Generator]
// continues a text token by token, with a cache of keys and values; a [Scorer]
// gives logits, hidden states and losses of whole texts.
//
// Weights stay in the files of the model, which are read as long as it is in
// use. Where one is cut short meanwhile, or its disk fails, what was under way
// ends with safetensors.ErrFault, which names the file.
package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/host"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
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
	host      *host.Host
	slot      *engine.Slot
	maxLength int
	chunk     int

	cache    *engine.Cache
	specs    [2]engine.Spec    // of the programs for a prompt and for a token
	programs []*engine.Program // of these
	results  host.Results      // of the last run
	cached   []int32           // the tokens whose keys and values are in the cache
	longest  int               // the longest text that they were made for
	derived  []nn.Derived

	given  data.Batch // of a run
	logits []float32
}

// lastInput is the number of the token whose logits a run gives, i32 [1], and
// logitsResult is where they are, f32 [1, vocab].
const (
	lastInput    = "last"
	logitsResult = "logits"
)

// New prepares a generator; state is an adapter, or nil. m must stay open
// until the generator is closed. Errors: ErrTooLong if o.MaxLength is more than
// the model can take, model.ErrTask if it continues no texts, and those of the device.
func New(ctx context.Context, dev backend.Device, m *model.Model, state *lora.State, o Options) (*Generator, error) {
	if err := m.CheckTask(model.NextToken); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	limit := m.Config.MaxLength()
	switch {
	case o.MaxLength < 0 || o.PrefillChunk < 0:
		return nil, fmt.Errorf("generate: %w: max length %d and prefill chunk %d, expected 0 or more", ErrOption, o.MaxLength, o.PrefillChunk)
	case o.MaxLength > limit:
		return nil, fmt.Errorf("generate: %w: a length of %d, the model takes %d (max_position_embeddings)", ErrTooLong, o.MaxLength, limit)
	}
	g := &Generator{host: host.Open(dev, m), maxLength: o.MaxLength, chunk: o.PrefillChunk, logits: make([]float32, m.Config.VocabSize)}
	if g.maxLength == 0 {
		g.maxLength = limit
	}
	if g.chunk == 0 {
		g.chunk = defaultChunk
	}
	g.chunk = min(g.chunk, g.maxLength)
	var err error
	if g.slot, err = g.host.NewSlot(state); err != nil {
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
func (g *Generator) Bytes() int { return g.host.Bytes() + g.slot.Bytes() + g.cache.Bytes() }

// Reset forgets the last text.
func (g *Generator) Reset() { g.cached, g.longest = g.cached[:0], 0 }

// Close frees the device's memory.
func (g *Generator) Close() {
	g.host.Close()
	g.cache.Free()
	g.slot.Free()
}

// reserve makes room for so many tokens. The cache has a power of two of rows, so
// that a chat that grows compiles a few times only, and what was read stays.
func (g *Generator) reserve(ctx context.Context, tokens int) error {
	if g.cache != nil && tokens <= g.cache.Rows() {
		return nil
	}
	capacity := minCapacity
	for capacity < tokens {
		capacity *= 2
	}
	cache := g.host.NewCache(min(capacity, g.maxLength))
	specs := [2]engine.Spec{g.spec("prefill", g.chunk, cache), g.spec("decode", 1, cache)}
	programs, err := g.host.Programs(ctx, g.slot, specs[:]...)
	if err == nil {
		if err = cache.CopyFrom(ctx, g.cache, len(g.cached)); err != nil {
			g.host.Unload(programs...)
		}
	}
	if err != nil {
		cache.Free()
		return err
	}
	g.host.Unload(g.programs...)
	g.cache.Free()
	g.programs, g.specs, g.cache = programs, specs, cache
	g.cached = slices.Grow(g.cached, cache.Rows()-len(g.cached))
	return nil
}

// spec is a program that reads as many tokens at most, over a cache.
func (g *Generator) spec(name string, most int, c *engine.Cache) engine.Spec {
	return engine.Spec{Name: name, Bounds: map[string]int{nn.Tokens: most}, Cache: c, Build: func(b *nn.Builder, p *graph.Program) {
		// The logits of one token: those of all the others are never computed.
		p.Result(logitsResult, g.host.Model().Build(b).Logits(b, b.Input(lastInput, tensor.I32, ir.Static(1))))
		g.derived = b.Tables()
	}}
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
	had := len(g.cached)
	for len(g.cached) < len(prompt) {
		at := len(g.cached)
		if err := g.run(ctx, prompt[at:min(at+g.chunk, len(prompt))], len(prompt)); err != nil {
			g.cached = g.cached[:had]
			return nil, err
		}
	}
	if err := g.results.Read(ctx, logitsResult, g.logits); err != nil {
		// Rows behind those in use may have been written; nothing reads them.
		g.cached = g.cached[:had]
		return nil, err
	}
	return g.logits, nil
}

// run reads a few tokens behind those in the cache. length is that of the text
// by which derived tables are chosen: of the whole prompt, or up to the token that
// is being generated.
func (g *Generator) run(ctx context.Context, ids []int32, length int) error {
	spec, at := &g.specs[0], len(g.cached)
	if len(ids) == 1 {
		spec = &g.specs[1]
	}
	g.longest = max(g.longest, length)
	in := &g.given
	in.Reset()
	in.AddAfter(ids, at)
	in.SetInt(nn.Offset, int32(at))
	in.SetInt(lastInput, int32(len(ids)-1))
	var err error
	if g.results, err = g.host.Compute(ctx, g.slot, *spec, in, length); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	g.cached = append(g.cached, ids...)
	return nil
}

// checkTokens finds ids that the model has no embedding for.
func checkTokens(vocab int, ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("generate: %w: id %d at position %d, the model's vocabulary has %d", ErrToken, id, i, vocab)
		}
	}
	return nil
}
