package lorafuse

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/serve"
)

// ServeOptions configure [Model.Handler].
type ServeOptions struct {
	Name string   // of the model in the API. Empty means the name of its folder.
	Keys []string // API keys, each KEY or NAME KEY. Without keys everyone may ask.
	// Logger gets one line per request. Nil means slog.Default().
	Logger *slog.Logger
}

// Handler serves the model and its adapters over an OpenAI-compatible API: chat completions,
// completions, or embeddings for an encoder. Clients select adapters loaded by LoadAdapter by
// name. The model must stay open.
func (m *Model) Handler(ctx context.Context, o ServeOptions) (http.Handler, error) {
	s := serve.Options{Model: m.model, Name: o.Name, Tokenizer: m.tokenizer, Template: m.template, OneTemplate: m.options.ChatTemplate != "", Keys: o.Keys, Logger: o.Logger}
	if m.generates() {
		e, err := m.open(ctx)
		if err != nil {
			return nil, err
		}
		s.Engine, s.MaxLength = e, e.MaxLength()
	} else {
		m.mu.Lock()
		e, err := m.embedder(ctx, "")
		m.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("lorafuse: %w", err)
		}
		s.Embedder = sharedEmbedder{m, e}
	}
	h, err := serve.New(s)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: %w", err)
	}
	return h, nil
}

// sharedEmbedder is the embedder of a model, which Embed uses too.
type sharedEmbedder struct {
	m *Model
	*embed.Embedder
}

// Embed implements serve.Embedder.
func (e sharedEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.Embedder.Embed(ctx, texts)
}

// EmbedTokens implements serve.Embedder.
func (e sharedEmbedder) EmbedTokens(ctx context.Context, rows [][]int32) ([][]float32, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.Embedder.EmbedTokens(ctx, rows)
}
