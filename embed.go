package lorafuse

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// Embed returns the embeddings of texts, as sentence-transformers computes them from the files
// of the model: one vector of equal length for each text. adapter is the name of a loaded
// adapter; empty means the model alone.
func (m *Model) Embed(ctx context.Context, texts []string, adapter string) ([][]float32, error) {
	m.mu.Lock() // an embedder is used by one call at a time
	defer m.mu.Unlock()
	e, err := m.embedder(ctx, adapter)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: %w", err)
	}
	vectors, err := e.Embed(ctx, texts)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: %w", err)
	}
	return vectors, nil
}

// embedder returns the embedder of an adapter. m.mu is held.
func (m *Model) embedder(ctx context.Context, adapter string) (*embed.Embedder, error) {
	if m.closed {
		return nil, ErrClosed
	}
	if e := m.embedders[adapter]; e != nil {
		return e, nil
	}
	var state *lora.State
	if adapter != "" {
		dir, ok := m.adapters[adapter]
		if !ok {
			return nil, fmt.Errorf("adapter %q: %w", adapter, lora.ErrNotFound)
		}
		var err error
		if state, err = lora.LoadState(dir, m.model, m.model.Config.ModelType, m.model.Modules()); err != nil {
			return nil, err
		}
	}
	e, err := embed.New(ctx, m.device, m.model, state, embed.Options{Tokenizer: m.tokenizer, MaxLength: m.options.MaxLength})
	if err == nil {
		m.embedders[adapter] = e
	}
	return e, err
}

// TokenLogprob is a token of a text and its log-probability, in nats, given those before it.
type TokenLogprob struct {
	ID      int32
	Text    string
	Logprob float32
}

// Score returns the log-probabilities of the tokens of a text, except the first, which nothing
// predicts. adapter is the name of a loaded adapter; empty means the model alone.
func (m *Model) Score(ctx context.Context, text, adapter string) ([]TokenLogprob, error) {
	e, err := m.open(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := m.tokenizer.Encode(text, true)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: %w", err)
	}
	r := batching.Request{Prompt: ids, Adapter: adapter, PromptLogprobs: true, Answers: []generate.GenerateOptions{{MaxNewTokens: 1}}}
	var scores []TokenLogprob
	for t, err := range e.Submit(ctx, r) {
		if err != nil {
			return nil, fmt.Errorf("lorafuse: %w", err)
		}
		for _, l := range t.Prompt[min(1, len(t.Prompt)):] {
			token, _ := m.tokenizer.Decode([]int32{l.ID}, false)
			scores = append(scores, TokenLogprob{l.ID, token, l.Logprob})
		}
	}
	return scores, nil
}
