// Package serve implements an HTTP server for one model and its adapters. Its API is OpenAI's, with
// vLLM's endpoints for adapters.
//
// A [Server] is an http.Handler. It validates requests, tokenizes their messages, and writes the
// answers of an [Engine], whole or as server-sent events. A field that OpenAI or another server
// supports and this one does not is refused by name, unless its value leaves the feature off.
// Unknown fields are ignored, and each name is logged once.
//
// As with vLLM, the model's generation_config.json sets the sampling parameters that a request
// omits: repetition_penalty, temperature, top_k, top_p, min_p, and max_new_tokens, which is also
// the upper limit for requests. Without the file, the temperature is 1.
package serve

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/webpage"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// Engine generates answers with a model and its adapters; *batching.Engine implements it.
type Engine interface {
	Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error]
	Adapters() *lora.Registry
}

// Embedder computes embeddings; *embed.Embedder implements it. A server calls it for one request at
// a time.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	EmbedTokens(ctx context.Context, rows [][]int32) ([][]float32, error)
	MaxLength() int // maximum number of tokens of an input; longer ones are truncated
}

// Options configure a server. Model is required, and Engine or Embedder.
type Options struct {
	Engine   Engine       // nil: no text generation
	Embedder Embedder     // nil: no embeddings
	Model    *model.Model // of both
	Name     string       // public model name; default: name of the folder
	// MaxLength is the maximum number of tokens of prompt and answer, as in the engine. Zero means
	// the limit of the model.
	MaxLength int
	// Tokenizer and Template, if not nil, replace the tokenizer and the chat template in the
	// model's folder.
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template
	// OneTemplate makes requests for adapters use Template instead of the chat template in the
	// adapter's folder.
	OneTemplate bool

	// Keys are the API keys of clients, each KEY or NAME KEY. If there are none, no key is needed
	// and everything belongs to all. Files, jobs, models and the prefix cache belong to the name of
	// a key. If there are AdminKeys, only they can load and unload adapters; they see the objects
	// of all keys.
	Keys, AdminKeys []string
	// Visible reports whether a client may use an adapter that was not made by Tuning. Nil allows
	// all.
	Visible func(who keys.Client, adapter string) bool
	// SharePrefixCache lets clients reuse the cached prefixes of others. From response times and
	// cached_tokens they can then find out what others have asked.
	SharePrefixCache bool
	// AllowAdapterUpdates lets clients load adapters from below the registry's root, and unload
	// adapters.
	AllowAdapterUpdates bool
	Origins             []string // allowed web origins; "*" allows all
	// Tuning provides files and fine-tuning jobs. Nil disables them.
	Tuning *tuning.Service

	MaxBody        int64 // request size in bytes; 0 means 32 MiB
	MaxAnswers     int   // per request, n times the number of prompts; 0 means 128
	MaxTopLogprobs int   // 0 means 20
	// BodyTimeout is the time limit for receiving a request, and for each further part of an
	// upload, which is 16 KiB per second of the timeout. Zero means one minute.
	BodyTimeout time.Duration
	// WriteTimeout is the time limit of a write to a client. Zero means 30 s.
	WriteTimeout time.Duration

	Logger  *slog.Logger // logs one line per request; nil: slog.Default()
	Version string       // of the program, for /version
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	options    Options
	routes     *http.ServeMux
	tokenizer  *tokenizer.Tokenizer
	format     chatFormat // of the base model
	defaults   generate.Config
	eos        []int32 // end-of-sequence tokens of the model, or of the tokenizer
	keys       keys.Ring
	started    time.Time
	vocabulary func() (*constrain.Vocabulary, error) // built at the first use of a grammar
	pieces     func() [][]byte                       // bytes of each token by ID
	grammars   grammars
	unknown    unknownFields
	embedding  chan struct{} // semaphore: one request at a time
	draining   atomic.Bool
}

// New returns a server. It fails if the model's folder has no tokenizer or contains unreadable
// settings.
func New(o Options) (*Server, error) {
	if o.Model == nil || o.Engine == nil && o.Embedder == nil {
		return nil, errors.New("serve: expected a model, and an engine or an embedder")
	}
	if o.Name == "" {
		dir, err := filepath.Abs(o.Model.Dir)
		if err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
		o.Name = filepath.Base(dir)
	}
	or(&o.MaxLength, o.Model.Config.MaxLength())
	or(&o.MaxBody, 32<<20)
	or(&o.MaxAnswers, 128)
	or(&o.MaxTopLogprobs, 20)
	or(&o.BodyTimeout, time.Minute)
	or(&o.WriteTimeout, 30*time.Second)
	or(&o.Logger, slog.Default())
	s := &Server{
		options: o, tokenizer: o.Tokenizer,
		started: time.Now(), embedding: make(chan struct{}, 1), grammars: grammars{compiling: make(chan struct{}, 1)},
	}
	var err error
	if s.keys, err = keys.NewRing(o.Keys, o.AdminKeys); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if s.tokenizer == nil {
		if s.tokenizer, err = tokenizer.Load(o.Model.Dir); err != nil {
			return nil, err
		}
	}
	s.eos = slices.Clip(s.tokenizer.Ends(o.Model.Config.EOS))
	if o.Template == nil {
		if o.Template, err = chat.Find("", s.tokenizer.SpecialTokens(), o.Model.Dir); err != nil {
			return nil, err
		}
	}
	s.format = newChatFormat(o.Template)
	if s.defaults, err = readDefaults(o.Model.Dir); err != nil {
		return nil, err
	}
	tokenBytes := sync.OnceValues(s.tokenizer.TokenBytes)
	s.vocabulary = sync.OnceValues(func() (*constrain.Vocabulary, error) {
		tokens, err := tokenBytes()
		if err != nil {
			return nil, err
		}
		return constrain.NewVocabulary(tokens)
	})
	s.pieces = func() [][]byte {
		tokens, _ := tokenBytes() // on error, tokens appear as in the vocabulary
		return tokens
	}
	s.routes = s.newRoutes()
	return s, nil
}

// or sets *v to normal if it is zero.
func or[T comparable](v *T, normal T) {
	var zero T
	if *v == zero {
		*v = normal
	}
}

// Drain makes the server refuse new requests and report at /ready that it is not ready. Requests in
// progress continue. Call it before http.Server.Shutdown.
func (s *Server) Drain() { s.draining.Store(true) }

// access selects the clients that may use a route.
type access int

const (
	everyone access = iota
	users
	admins
)

// endpoint is the handler for a method and a path.
type endpoint struct {
	pattern string
	access  access
	handle  func(*call) error
}

func (s *Server) newRoutes() *http.ServeMux {
	m := http.NewServeMux()
	for _, r := range append(s.tuningRoutes(), []endpoint{
		{"GET /health", everyone, (*call).ok},
		{"GET /ping", everyone, (*call).ok},
		{"POST /ping", everyone, (*call).ok},
		{"GET /ready", everyone, s.ready},
		{"GET /version", everyone, s.version},
		{"GET /v1/models", users, s.listModels},
		{"GET /v1/models/{id...}", users, s.findModel},
		{"POST /v1/chat/completions", users, s.chat},
		{"POST /v1/completions", users, s.complete},
		{"POST /v1/embeddings", users, s.embed},
		{"POST /tokenize", users, s.tokenize},
		{"POST /detokenize", users, s.detokenize},
		{"POST /v1/load_lora_adapter", admins, s.loadAdapter},
		{"POST /v1/unload_lora_adapter", admins, s.unloadAdapter},
	}...) {
		if r.access == admins && (!s.options.AllowAdapterUpdates || s.options.Engine == nil) {
			continue
		}
		m.Handle(r.pattern, route{s, r.access, r.handle})
	}
	for pattern, h := range webpage.Routes() {
		m.Handle(pattern, route{s, everyone, func(c *call) error {
			h.ServeHTTP(c, c.request)
			return nil
		}})
	}
	return m
}

// tuningRoutes returns the endpoints for files and jobs.
func (s *Server) tuningRoutes() []endpoint {
	t := s.options.Tuning
	if t == nil {
		return nil
	}
	return []endpoint{
		{"POST /v1/files", users, s.uploadFile},
		{"GET /v1/files", users, s.listFiles},
		{"GET /v1/files/{id}", users, s.findFile},
		{"GET /v1/files/{id}/content", users, s.readFile},
		{"DELETE /v1/files/{id}", users, s.deleteFile},
		{"POST /v1/fine_tuning/jobs", users, s.createJob},
		{"GET /v1/fine_tuning/jobs", users, s.listJobs},
		{"GET /v1/fine_tuning/jobs/{id}", users, job(t.Job)},
		{"POST /v1/fine_tuning/jobs/{id}/cancel", users, job(t.Cancel)},
		{"POST /v1/fine_tuning/jobs/{id}/pause", users, job(t.Pause)},
		{"POST /v1/fine_tuning/jobs/{id}/resume", users, job(t.Resume)},
		{"GET /v1/fine_tuning/jobs/{id}/events", users, s.listEvents},
		{"GET /v1/fine_tuning/jobs/{id}/checkpoints", users, s.listCheckpoints},
		{"DELETE /v1/models/{id...}", users, s.deleteModel},
	}
}

func (c *call) ok() error {
	c.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) ready(c *call) error {
	if s.draining.Load() {
		return errDraining()
	}
	return c.ok()
}

func (s *Server) version(c *call) error {
	return c.json(struct {
		Version string `json:"version"`
	}{s.options.Version})
}
