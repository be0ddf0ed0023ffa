// Package embed computes text embeddings with an encoder or a decoder, optionally with an adapter, like encode of
// sentence-transformers. Texts are sorted by length and concatenated, so that nothing is computed for padding. [New]
// returns an [Embedder].
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Errors that embedding may wrap.
var (
	ErrOption = errors.New("wrong option")
	// ErrText is the error for a text that cannot be embedded.
	ErrText = errors.New("wrong text")
	// ErrNotFinite is the error for an embedding with NaN or infinite elements.
	ErrNotFinite = errors.New("not finite")
)

// defaultBatch is the default number of tokens per batch: large enough for efficient matrix multiplications, and small
// enough for the results to stay in cache.
const defaultBatch = 1024

// Options configures an embedder. The zero value uses the settings in the model folder.
type Options struct {
	// Transform computes an embedding from token states. Nil means the one in the model folder.
	Transform *sentence.Transform
	// Pooling replaces the modes of the transform unless it is nil. Normalize scales embeddings to
	// length 1 even if the transform does not.
	Pooling   []sentence.Mode
	Normalize bool
	// Tokenizer tokenizes the texts. Nil means the one in the model folder.
	Tokenizer *tokenizer.Tokenizer
	// Prompt is prepended to each text; PromptName selects a prompt of the model. If both are empty, the model's
	// default prompt is used.
	Prompt, PromptName string
	// MaxLength truncates texts to fewer tokens than the model does. Zero means the limit of the model.
	MaxLength int
	// BatchTokens is the number of tokens per batch. Zero means 1024; it is raised to the length of the longest allowed
	// text.
	BatchTokens int
	// Progress, if not nil, is called after each batch.
	Progress func(done, total int)
}

// Embedder computes embeddings. It is safe for concurrent use; texts are embedded one call at a time.
type Embedder struct {
	host      *host.Host
	slot      *engine.Slot
	spec      engine.Spec
	transform *sentence.Transform
	tokenizer *tokenizer.Tokenizer
	prompt    string
	longest   int // maximum tokens per text
	budget    int // maximum tokens per batch
	size      int // elements per embedding
	vocab     int
	report    func(done, total int)

	alone bool // batches hold texts of one length only, since tables depend on it

	mu        sync.Mutex // guards the fields below
	batch     data.Batch
	truncated int
}

const vectorsResult = "vectors"

// New returns an embedder. m must stay open until the embedder is closed; state is an adapter, or nil. It fails with
// ErrOption, with errors of package sentence about the model folder, and with errors of the device.
func New(ctx context.Context, dev backend.Device, m *model.Model, state *lora.State, o Options) (_ *Embedder, err error) {
	e := &Embedder{host: host.Open(dev, m), transform: o.Transform, tokenizer: o.Tokenizer, report: o.Progress, vocab: m.Config.VocabSize}
	if o.MaxLength < 0 || o.BatchTokens < 0 {
		return nil, fmt.Errorf("embed: %w: max length %d and batch tokens %d, expected 0 or more", ErrOption, o.MaxLength, o.BatchTokens)
	}
	if e.transform == nil {
		if e.transform, err = sentence.Read(m.Dir); err != nil {
			return nil, fmt.Errorf("embed: %w", err)
		}
	}
	if o.Pooling != nil || o.Normalize {
		own := *e.transform
		if o.Pooling != nil {
			own.Pooling = o.Pooling
		}
		if o.Normalize && !slices.Contains(own.Steps, sentence.Step{}) {
			own.Steps = append(slices.Clip(own.Steps), sentence.Step{})
		}
		e.transform = &own
	}
	if e.tokenizer == nil {
		if e.tokenizer, err = tokenizer.Load(m.Dir); err != nil {
			return nil, fmt.Errorf("embed: %w", err)
		}
	}
	if e.transform.LowerCase {
		e.tokenizer = e.tokenizer.Lowercased()
	}
	if e.prompt = o.Prompt; e.prompt == "" {
		if e.prompt, err = e.transform.Prompt(o.PromptName); err != nil {
			return nil, fmt.Errorf("embed: %w", err)
		}
	}
	if e.prompt != "" && e.transform.ExcludePrompt {
		return nil, fmt.Errorf("embed: %w: a prompt, with include_prompt false of the model's Pooling; supported: true", sentence.ErrUnsupported)
	}
	e.longest = e.transform.Longest(m.Config.MaxLength())
	if o.MaxLength > 0 {
		e.longest = min(e.longest, o.MaxLength)
	}
	if specials := e.tokenizer.NumSpecialTokens(); e.longest <= specials {
		return nil, fmt.Errorf("embed: %w: a max length of %d, expected more than the %d special tokens of each text", ErrOption, e.longest, specials)
	}
	if e.budget = o.BatchTokens; e.budget == 0 {
		e.budget = defaultBatch
	}
	e.budget = max(e.budget, e.longest)
	e.size = e.transform.Size(m.Config.HiddenSize)
	if e.slot, err = e.host.NewSlot(state); err != nil {
		return nil, err
	}
	if err := e.compile(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// compile compiles the program and uploads its inputs.
func (e *Embedder) compile(ctx context.Context) error {
	m := e.host.Model()
	var err error
	bounds := map[string]int{nn.Tokens: e.budget, sentence.Texts: e.budget}
	e.spec = engine.Spec{Name: "embed", Bounds: bounds, Build: func(b *nn.Builder, p *graph.Program) {
		var states graph.Tensor
		if states, err = m.Build(b).Last(); err != nil {
			err = fmt.Errorf("embed: %s: %w", m.Config.Architecture, err)
			return
		}
		p.Result(vectorsResult, e.transform.Vectors(b, states, e.longest))
		e.alone = slices.ContainsFunc(b.Tables(), nn.Derived.Changes)
	}}
	_, failed := e.host.Program(ctx, e.slot, e.spec)
	return cmp.Or(err, failed)
}

// Size returns the number of elements of an embedding.
func (e *Embedder) Size() int { return e.size }

// MaxLength returns the number of tokens to which texts are truncated.
func (e *Embedder) MaxLength() int { return e.longest }

// Truncated returns the number of texts truncated so far.
func (e *Embedder) Truncated() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.truncated
}

// Close frees the device memory.
func (e *Embedder) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.host.Close()
	e.slot.Free()
}

// Embed returns the embedding of each text, in order. Batching changes an embedding only by the rounding of matrix
// multiplications with different numbers of rows. It fails with ErrText, tokenizer.ErrInvalidUTF8 and errors of the
// device.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rows, err := e.tokenize(ctx, texts)
	if err != nil {
		return nil, err
	}
	return e.embed(ctx, rows)
}

// Batch is a part of texts that Embed computes at once.
type Batch struct {
	Texts  []int     // their indices
	Tokens [][]int32 // of each
}

// Batches returns the batches of Embed. EmbedTokens computes the same embeddings for the tokens of a batch, bit for
// bit. It fails with ErrText and tokenizer.ErrInvalidUTF8.
func (e *Embedder) Batches(ctx context.Context, texts []string) ([]Batch, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rows, err := e.tokenize(ctx, texts)
	if err != nil {
		return nil, err
	}
	return e.batches(rows)
}

// tokenize returns the tokens of texts. e.mu is held.
func (e *Embedder) tokenize(ctx context.Context, texts []string) ([][]int32, error) {
	rows := make([][]int32, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ids, cut, err := e.tokenizer.EncodeWithin(e.prompt+text, e.longest)
		if err != nil {
			return nil, fmt.Errorf("embed: text %d: %w", i, err)
		}
		if cut {
			e.truncated++
		}
		rows[i] = ids
	}
	return rows, nil
}

// EmbedTokens returns embeddings of tokenized texts, which include special tokens and the prompt. See Embed.
func (e *Embedder) EmbedTokens(ctx context.Context, rows [][]int32) ([][]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.embed(ctx, rows)
}

// batches divides tokenized texts into batches: the longest texts first.
func (e *Embedder) batches(rows [][]int32) (all []Batch, err error) {
	for i, ids := range rows {
		if err := e.check(ids); err != nil {
			return nil, fmt.Errorf("embed: text %d: %w", i, err)
		}
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(rows[b]), len(rows[a])) })
	for len(order) > 0 {
		var b Batch
		tokens, longest := 0, len(rows[order[0]])
		for _, i := range order {
			tokens += len(rows[i])
			if tokens > e.budget || e.alone && len(rows[i]) != longest {
				break
			}
			b.Texts, b.Tokens = append(b.Texts, i), append(b.Tokens, rows[i])
		}
		all, order = append(all, b), order[len(b.Texts):]
	}
	return all, nil
}

// embed embeds tokenized texts. e.mu is held.
func (e *Embedder) embed(ctx context.Context, rows [][]int32) ([][]float32, error) {
	batches, err := e.batches(rows)
	if err != nil {
		return nil, err
	}
	out, done := make([][]float32, len(rows)), 0
	for _, b := range batches {
		e.batch.Reset()
		for _, ids := range b.Tokens {
			e.batch.Add(ids, nil)
		}
		vectors, err := e.vectors(ctx)
		if err != nil {
			return nil, err
		}
		for j, i := range b.Texts {
			out[i] = vectors[j*e.size : (j+1)*e.size : (j+1)*e.size]
			if !finite(out[i]) {
				return nil, fmt.Errorf("embed: the vector of text %d is %w", i, ErrNotFinite)
			}
		}
		if done += len(b.Texts); e.report != nil {
			e.report(done, len(rows))
		}
	}
	return out, nil
}

func finite(x []float32) bool {
	sum := 0.0 // 0, or NaN if an element is not finite
	for _, v := range x {
		sum += float64(v) - float64(v)
	}
	return sum == 0
}

// check returns an error for tokens that the model cannot process.
func (e *Embedder) check(ids []int32) error {
	switch {
	case len(ids) == 0:
		return fmt.Errorf("%w: it has no tokens", ErrText)
	case len(ids) > e.longest:
		return fmt.Errorf("%w: it has %d tokens, the embedder takes %d", ErrText, len(ids), e.longest)
	}
	for at, id := range ids {
		if id < 0 || int(id) >= e.vocab {
			return fmt.Errorf("%w: id %d at position %d, the model's vocabulary has %d", ErrText, id, at, e.vocab)
		}
	}
	return nil
}

// vectors returns the vectors of the texts of the batch, one behind the other.
func (e *Embedder) vectors(ctx context.Context) ([]float32, error) {
	sentence.Mark(&e.batch)
	results, err := e.host.Compute(ctx, e.slot, e.spec, &e.batch, e.batch.Longest())
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	return results.Get(ctx, vectorsResult)
}
