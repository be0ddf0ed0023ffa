package lorafuse

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/pretrained"
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

// embedder computes embeddings with an adapter.
type embedder struct {
	*embed.Embedder
	model *pretrained.Model
}

func (e *embedder) close() {
	e.Close()
	e.model.Close()
}

// embedder returns the embedder of an adapter. m.mu is held.
func (m *Model) embedder(ctx context.Context, adapter string) (*embedder, error) {
	if m.closed {
		return nil, ErrClosed
	}
	if e := m.embedders[adapter]; e != nil {
		return e, nil
	}
	dir, err := m.folder(adapter)
	if err != nil {
		return nil, err
	}
	x, err := m.model.Adapt(dir)
	if err != nil {
		return nil, err
	}
	tok, err := x.Tokenizer()
	if err == nil {
		e := &embedder{model: x}
		if e.Embedder, err = embed.New(ctx, m.device, x.Model, x.State, embed.Options{Tokenizer: tok, MaxLength: m.options.MaxLength}); err == nil {
			m.embedders[adapter] = e
			return e, nil
		}
	}
	return nil, errors.Join(err, x.Close())
}

// folder returns the folder of a loaded adapter, or nothing for no adapter. m.mu is held.
func (m *Model) folder(adapter string) (string, error) {
	dir, ok := m.adapters[adapter]
	if !ok && adapter != "" {
		return "", fmt.Errorf("adapter %q: %w", adapter, lora.ErrNotFound)
	}
	return dir, nil
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
	ids, err := m.texts.Encode(text, true)
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
			token, _ := m.texts.Decode([]int32{l.ID}, false)
			scores = append(scores, TokenLogprob{l.ID, token, l.Logprob})
		}
	}
	return scores, nil
}
