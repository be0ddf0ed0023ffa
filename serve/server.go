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
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/internal/serve/webpage"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// Engine generates tokens with a model and its adapters; *batching.Group implements it. Its
// methods are called concurrently.
type Engine interface {
	// Submit returns an iterator over the tokens of the answers to a request, which starts with the
	// iteration. An error is the last element. Leaving the loop or ending ctx cancels the request.
	Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error]
	// Adapters returns the adapters that requests select by name.
	Adapters() *lora.Registry
}

// Embedder computes embeddings; *embed.Embedder implements it. A server calls it for one request at
// a time.
type Embedder interface {
	// Embed returns the embedding of each text.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// EmbedTokens returns the embedding of each row of token ids.
	EmbedTokens(ctx context.Context, rows [][]int32) ([][]float32, error)
	MaxLength() int // maximum number of tokens of an input; longer ones are truncated
}

// Options configure a server. Model is required, and Engine or Embedder.
type Options struct {
	Engine   Engine   // nil: no text generation
	Embedder Embedder // nil: no embeddings
	// Lost returns for each device of the engine the error by which it was lost, or nil. If Lost is
	// nil, no device is lost.
	Lost  func() []error
	Model *model.Model // of both
	Name  string       // public model name; default: name of the folder
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
	// MaxResponses is the size in bytes of the responses that clients of /v1/responses have stored,
	// altogether. They are kept in memory. Zero means 64 MiB; a negative size stores none.
	MaxResponses int64
	// WriteTimeout is the time limit of a write to a client. Zero means 30 s.
	WriteTimeout time.Duration

	Logger  *slog.Logger // logs one line per request; nil: slog.Default()
	Version string       // of the program, for /version
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	options    Options
	api        *web.API
	tokenizer  *tokenizer.Tokenizer
	format     chatFormat // of the base model
	defaults   generate.Config
	eos        []int32 // end-of-sequence tokens of the model, or of the tokenizer
	started    time.Time
	vocabulary func() (*constrain.Vocabulary, error) // built at the first use of a grammar
	pieces     func() [][]byte                       // bytes of each token by ID
	grammars   grammars
	responses  responseStore
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
	o.MaxLength = cmp.Or(o.MaxLength, o.Model.Config.MaxLength())
	o.MaxBody = cmp.Or(o.MaxBody, 32<<20)
	o.MaxAnswers = cmp.Or(o.MaxAnswers, 128)
	o.MaxTopLogprobs = cmp.Or(o.MaxTopLogprobs, 20)
	o.MaxResponses = cmp.Or(o.MaxResponses, 64<<20)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &Server{
		options: o, tokenizer: o.Tokenizer,
		started: time.Now(), embedding: make(chan struct{}, 1), grammars: grammars{compiling: make(chan struct{}, 1)},
		responses: responseStore{limit: o.MaxResponses},
	}
	ring, err := keys.NewRing(o.Keys, o.AdminKeys)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if s.tokenizer == nil {
		if s.tokenizer, err = tokenizer.Load(o.Model.Dir); err != nil {
			return nil, err
		}
	}
	s.eos = slices.Clip(s.tokenizer.StopTokens(o.Model.Config.EOS))
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
	s.api = &web.API{
		Keys: ring, Key: bearer, KeyExpected: "Authorization: Bearer KEY", Admit: s.admit, Classify: classify, Shape: shape,
		Limits: map[string]int{"answers": o.MaxAnswers, "logprobs": o.MaxTopLogprobs, vocabLimit: o.Model.Config.VocabSize}, Unsupported: unsupported,
		Origins: o.Origins, MaxBody: o.MaxBody, BodyTimeout: o.BodyTimeout, WriteTimeout: o.WriteTimeout, Logger: o.Logger,
	}
	s.addRoutes()
	return s, nil
}

// Drain makes the server refuse new requests and report at /ready that it is not ready. Requests in
// progress continue. Call it before http.Server.Shutdown.
func (s *Server) Drain() { s.draining.Store(true) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.api.ServeHTTP(w, r) }

// vocabLimit names the size of the vocabulary in the limits of decoders.
const vocabLimit = "vocab"

// bearer returns the API key of a request.
func bearer(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return key
}

// admit refuses requests while the server is shutting down.
func (s *Server) admit(*web.Call) error {
	if s.draining.Load() {
		return web.Draining()
	}
	return nil
}

// salt returns the prefix-cache salt of the client's texts.
func (s *Server) salt(c *web.Call, chosen string) string {
	if s.options.SharePrefixCache {
		return chosen
	}
	return c.Who.Salt(chosen)
}

// endpoint is the handler for a method and a path.
type endpoint struct {
	pattern string
	access  web.Access
	handle  func(*web.Call) error
}

func (s *Server) addRoutes() {
	for _, r := range append(s.tuningRoutes(), []endpoint{
		{"GET /health", web.Everyone, s.health},
		{"GET /ping", web.Everyone, s.health},
		{"POST /ping", web.Everyone, s.health},
		{"GET /ready", web.Everyone, s.ready},
		{"GET /version", web.Everyone, s.version},
		{"GET /v1/models", web.Users, s.listModels},
		{"GET /v1/models/{id...}", web.Users, s.findModel},
		{"POST /v1/chat/completions", web.Users, s.chat},
		{"POST /v1/completions", web.Users, s.complete},
		{"POST /v1/responses", web.Users, s.respond},
		{"GET /v1/responses/{id}", web.Users, s.getResponse},
		{"DELETE /v1/responses/{id}", web.Users, s.deleteResponse},
		{"POST /v1/responses/{id}/cancel", web.Users, s.cancelResponse},
		{"GET /v1/responses/{id}/input_items", web.Users, s.listInputItems},
		{"POST /v1/embeddings", web.Users, s.embed},
		{"POST /tokenize", web.Users, s.tokenize},
		{"POST /detokenize", web.Users, s.detokenize},
		{"POST /v1/load_lora_adapter", web.Admins, s.loadAdapter},
		{"POST /v1/unload_lora_adapter", web.Admins, s.unloadAdapter},
	}...) {
		if r.access == web.Admins && (!s.options.AllowAdapterUpdates || s.options.Engine == nil) {
			continue
		}
		s.api.Handle(r.pattern, r.access, r.handle)
	}
	for pattern, h := range webpage.Routes() {
		s.api.Handle(pattern, web.Everyone, func(c *web.Call) error {
			h.ServeHTTP(c, c.Request)
			return nil
		})
	}
}

// tuningRoutes returns the endpoints for files and jobs.
func (s *Server) tuningRoutes() []endpoint {
	t := s.options.Tuning
	if t == nil {
		return nil
	}
	return []endpoint{
		{"POST /v1/files", web.Users, s.uploadFile},
		{"GET /v1/files", web.Users, s.listFiles},
		{"GET /v1/files/{id}", web.Users, s.findFile},
		{"GET /v1/files/{id}/content", web.Users, s.readFile},
		{"DELETE /v1/files/{id}", web.Users, s.deleteFile},
		{"POST /v1/fine_tuning/jobs", web.Users, s.createJob},
		{"GET /v1/fine_tuning/jobs", web.Users, s.listJobs},
		{"GET /v1/fine_tuning/jobs/{id}", web.Users, job(t.Job)},
		{"POST /v1/fine_tuning/jobs/{id}/cancel", web.Users, job(t.Cancel)},
		{"POST /v1/fine_tuning/jobs/{id}/pause", web.Users, job(t.Pause)},
		{"POST /v1/fine_tuning/jobs/{id}/resume", web.Users, job(t.Resume)},
		{"GET /v1/fine_tuning/jobs/{id}/events", web.Users, s.listEvents},
		{"GET /v1/fine_tuning/jobs/{id}/checkpoints", web.Users, s.listCheckpoints},
		{"DELETE /v1/models/{id...}", web.Users, s.deleteModel},
	}
}

// health answers without a body while all devices work, and lists the reasons otherwise.
func (s *Server) health(c *web.Call) error {
	c.Quiet = true
	var reasons []string
	working := s.options.Lost == nil
	if !working {
		for _, err := range s.options.Lost() {
			if err == nil {
				working = true
			} else {
				reasons = append(reasons, err.Error())
			}
		}
	}
	switch {
	case !working:
		return &web.Failure{Status: http.StatusServiceUnavailable, Message: strings.Join(reasons, "; "), Code: deviceLost}
	case reasons == nil:
		c.WriteHeader(http.StatusOK)
		return nil
	}
	return c.JSON(struct {
		Status  string   `json:"status"`
		Reasons []string `json:"reasons"`
	}{"degraded", reasons})
}

func (s *Server) ready(c *web.Call) error {
	c.Quiet = true
	if err := s.admit(c); err != nil {
		return err
	}
	return s.health(c)
}

func (s *Server) version(c *web.Call) error {
	return c.JSON(struct {
		Version string `json:"version"`
	}{s.options.Version})
}
