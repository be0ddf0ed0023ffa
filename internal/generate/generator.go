// Package generate runs models for inference: a [Generator] continues a text token by token
// with a KV cache; a [Scorer] computes logits, hidden states and losses of whole texts.
//
// Weights stay in the files of the model, which must remain readable while it is in use. If a
// file is truncated in that time, or its disk fails, work in progress ends with
// safetensors.ErrFault, which names the file.
package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// defaultChunk is the number of prompt tokens that are read in one run. It is large enough for
// matrix products, instead of reading all weights once for each token.
const defaultChunk = 256

// minCapacity is the minimum capacity of a cache in tokens.
const minCapacity = 256

// Options configure a generator.
type Options struct {
	// MaxLength is the maximum length of prompt and answer together, in tokens. Zero means the
	// model's limit, see [model.Config.MaxLength].
	MaxLength int
	// PrefillChunk is the number of prompt tokens that are read in one run. Zero means 256.
	PrefillChunk int
}

// Generator continues texts with one model. It caches the keys and values of its last text,
// and reads only the part of the next prompt that follows the common prefix. It is not safe
// for concurrent use.
type Generator struct {
	host      *host.Host
	slot      *engine.Slot
	borrowed  bool // both are the caller's
	maxLength int
	chunk     int

	cache    *engine.Cache
	specs    [2]engine.Spec    // of the programs for a prompt and for a token
	programs []*engine.Program // of these
	results  host.Results      // of the last run
	cached   []int32           // the tokens whose keys and values are in the cache
	longest  int               // the longest text that they were made for
	derived  []nn.Derived

	runInputs data.Batch // of a run
	logits    []float32
}

// lastInput names the input with the index of the token whose logits a run computes, i32 [1].
// logitsResult names the result that holds them, f32 [1, vocab].
const (
	lastInput    = "last"
	logitsResult = "logits"
)

// New returns a generator; state is an adapter, or nil. m must stay open until the generator
// is closed. Errors: ErrTooLong if o.MaxLength exceeds the model's limit, model.ErrTask if the
// model does not generate text, and errors of the device.
func New(ctx context.Context, dev backend.Device, m *model.Model, state *lora.State, o Options) (*Generator, error) {
	g, err := newGenerator(host.Open(dev, m), o)
	if err != nil {
		return nil, err
	}
	if g.slot, err = g.host.NewSlot(state); err != nil {
		return nil, err
	}
	if err := g.reserve(ctx, 1); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// On returns a generator that runs on a host, with the adapter in a slot of it. Both stay the
// caller's, who locks the host while the generator is in use, if others share it. Nothing is
// allocated before the first text. Errors: those of New.
func On(h *host.Host, s *engine.Slot, o Options) (*Generator, error) {
	g, err := newGenerator(h, o)
	if err != nil {
		return nil, err
	}
	g.slot, g.borrowed = s, true
	return g, nil
}

// newGenerator returns a generator without a slot.
func newGenerator(h *host.Host, o Options) (*Generator, error) {
	m := h.Model()
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
	g := &Generator{host: h, maxLength: o.MaxLength, chunk: o.PrefillChunk, logits: make([]float32, m.Config.VocabSize)}
	if g.maxLength == 0 {
		g.maxLength = limit
	}
	if g.chunk == 0 {
		g.chunk = defaultChunk
	}
	g.chunk = min(g.chunk, g.maxLength)
	return g, nil
}

// MaxLength returns the maximum length of prompt and answer together, in tokens.
func (g *Generator) MaxLength() int { return g.maxLength }

// Bytes returns the device memory of the weights, the adapter and the cache.
func (g *Generator) Bytes() int { return g.host.Bytes() + g.slot.Bytes() + g.cache.Bytes() }

// Reset forgets the last text.
func (g *Generator) Reset() { g.cached, g.longest = g.cached[:0], 0 }

// Close frees the device's memory.
func (g *Generator) Close() {
	if g.borrowed {
		g.host.Unload(g.programs...)
	} else {
		g.host.Close()
	}
	g.cache.Free()
	if !g.borrowed {
		g.slot.Free()
	}
}

// Need returns the device memory, in bytes, of texts of the given length in tokens, besides the
// weights and the adapter.
func (g *Generator) Need(tokens int) (int64, error) {
	cache := g.host.NewCache(g.capacity(tokens))
	defer cache.Free()
	var drafts []*engine.Draft
	for _, spec := range []engine.Spec{g.spec("prefill", g.chunk, cache), g.spec("decode", 1, cache)} {
		d, err := g.host.Plan(g.slot, spec)
		if err != nil {
			return 0, fmt.Errorf("generate: %w", err)
		}
		drafts = append(drafts, d)
	}
	n, err := g.host.Takes(drafts)
	return n + int64(cache.Rows()*drafts[0].RowBytes()), err
}

// capacity returns the number of cache rows for a number of tokens: a power of two, so that a
// growing chat recompiles only a few times.
func (g *Generator) capacity(tokens int) int {
	rows := minCapacity
	for rows < tokens {
		rows *= 2
	}
	return min(rows, g.maxLength)
}

// reserve makes room for the given number of tokens. Cached rows are kept.
func (g *Generator) reserve(ctx context.Context, tokens int) error {
	if g.cache != nil && tokens <= g.cache.Rows() {
		return nil
	}
	cache := g.host.NewCache(g.capacity(tokens))
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

// spec returns a program that reads up to most tokens, with a cache.
func (g *Generator) spec(name string, most int, c *engine.Cache) engine.Spec {
	return engine.Spec{Name: name, Bounds: map[string]int{nn.Tokens: most}, Cache: c, Build: func(b *nn.Builder, p *graph.Program) {
		// Compute the logits of one token only.
		p.Result(logitsResult, g.host.Model().Build(b).Logits(b, b.Input(lastInput, tensor.I32, ir.Static(1))))
		g.derived = b.Tables()
	}}
}

// keep truncates the cache to the common prefix with prompt. The last token of a prompt is
// always read, since its logits are needed.
func (g *Generator) keep(prompt []int32) {
	n := 0
	for n < len(g.cached) && n < len(prompt)-1 && g.cached[n] == prompt[n] {
		n++
	}
	longest := max(g.longest, len(prompt))
	if slices.ContainsFunc(g.derived, func(t nn.Derived) bool { return t.Changes() && longest > t.Until }) {
		n = 0 // those keys used other rotary frequencies
	}
	g.cached = g.cached[:n]
	if n == 0 {
		g.longest = 0
	}
}

// read runs the part of prompt that is not cached yet and returns the logits of its last
// token.
func (g *Generator) read(ctx context.Context, prompt []int32) ([]float32, error) {
	if slices.ContainsFunc(g.derived, func(t nn.Derived) bool { return t.Reread && g.longest <= t.Until && len(prompt) > t.Until }) {
		g.cached = g.cached[:0]
	}
	had := len(g.cached)
	for len(g.cached) < len(prompt) {
		at := len(g.cached)
		if err := g.run(ctx, prompt[at:min(at+g.chunk, len(prompt))], len(prompt)); err != nil {
			g.cached = g.cached[:had]
			return nil, err
		}
	}
	if err := g.results.Read(ctx, logitsResult, g.logits); err != nil {
		// The failed step may have written cache rows past the valid length. They are never
		// read.
		g.cached = g.cached[:had]
		return nil, err
	}
	return g.logits, nil
}

// run reads the tokens ids, which follow the cached ones. length is the text length that
// selects derived tables: the length of the whole prompt, or of the text up to the token that
// is being generated.
func (g *Generator) run(ctx context.Context, ids []int32, length int) error {
	spec, at := &g.specs[0], len(g.cached)
	if len(ids) == 1 {
		spec = &g.specs[1]
	}
	g.longest = max(g.longest, length)
	in := &g.runInputs
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
