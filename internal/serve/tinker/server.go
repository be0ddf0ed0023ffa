package tinker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Engine generates samples; *batching.Group implements it.
type Engine interface {
	Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error]
	Adapters() *lora.Registry
}

// Options configure a server. Engine, Trainer, Model and Dir are required.
type Options struct {
	Engine  Engine
	Trainer Trainer
	Model   *model.Model // of both
	Name    string       // public model name; default: name of the folder
	// Tokenizer replaces the one in the model's folder if it is not nil. TokenizerID is the name
	// from which clients load the tokenizer. If empty, it is the model's folder, which works only
	// on the same machine.
	Tokenizer   *tokenizer.Tokenizer
	TokenizerID string
	MaxLength   int    // maximum tokens of prompt and answer, as in the engine; 0 means the model's limit
	Dir         string // folder of saved data, created if missing
	// KeepFree is the number of bytes that checkpoints leave free on the disk. Zero means 1 GiB, or
	// 5 % of a smaller disk.
	KeepFree int64
	// Keys are the API keys of clients, each KEY or NAME KEY, sent as X-API-Key. If there are none,
	// no key is needed and everything belongs to all. Sessions, runs, checkpoints and the prefix
	// cache belong to the name of a key. AdminKeys see the objects of all keys.
	Keys, AdminKeys []string
	// SharePrefixCache lets clients reuse the cached prefixes of others. From response times they
	// can then find out what others have asked.
	SharePrefixCache bool

	MaxBody    int64 // request size in bytes; 0 means 64 MiB
	MaxSamples int   // concurrent sampling requests; 0 means 512
	MaxAnswers int   // per sampling request; 0 means 128
	MaxWaiting int64 // bytes of queued training data; 0 means 1 GiB
	// Poll is the maximum time that a poll waits for an answer. Zero means 30 s.
	Poll time.Duration
	// Keep is the lifetime of an answer after it was fetched. Zero means 5 minutes.
	Keep time.Duration
	// SessionTimeout is the time without a sign of life after which a session ends. Zero means 5
	// minutes.
	SessionTimeout time.Duration
	// OnSamplerGap, if not nil, is called with session.GapMetric of each training call that
	// contains sampled log-probabilities.
	OnSamplerGap func(gap float64)
	Logger       *slog.Logger // nil: slog.Default()
}

// Server is an http.Handler for the paths below /api/v1. It is safe for concurrent use.
type Server struct {
	options   Options
	api       *web.API
	tokenizer *tokenizer.Tokenizer
	store     *runStore
	futures   futures
	queue     *queue
	signature signer

	context  context.Context // of all computation
	cancel   context.CancelFunc
	work     sync.WaitGroup
	draining chan struct{}
	drained  atomic.Bool
	sampling atomic.Int64 // sampling requests in progress

	mu       sync.Mutex // guards the fields below
	sessions map[string]*tenant
	models   map[string]*trainee
	samplers map[string]*sampler
	weights  map[string]*weights // by name in the registry
}

// window is the maximum number of calls of a model that may be queued ahead of the current one.
const window = 1024

// New returns a server and starts its training goroutine. It loads saved data and removes
// unsaved data.
func New(o Options) (*Server, error) {
	if o.Engine == nil || o.Trainer == nil || o.Model == nil || o.Dir == "" {
		return nil, errors.New("tinker: expected an engine, a trainer, a model and a folder")
	}
	dir, err := filepath.Abs(o.Model.Dir)
	if err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	ring, err := keys.NewRing(o.Keys, o.AdminKeys)
	if err != nil {
		return nil, fmt.Errorf("tinker: %w", err)
	}
	o.Name = cmp.Or(o.Name, filepath.Base(dir))
	o.TokenizerID = cmp.Or(o.TokenizerID, dir)
	o.MaxLength = cmp.Or(o.MaxLength, o.Model.Config.MaxLength())
	o.MaxBody = cmp.Or(o.MaxBody, 64<<20)
	o.MaxSamples = cmp.Or(o.MaxSamples, 512)
	o.MaxAnswers = cmp.Or(o.MaxAnswers, 128)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 1<<30)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.Keep = cmp.Or(o.Keep, 5*time.Minute)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 5*time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &Server{
		options: o, tokenizer: o.Tokenizer, queue: newQueue(window, o.MaxWaiting), signature: newSigner(),
		draining: make(chan struct{}), sessions: map[string]*tenant{}, models: map[string]*trainee{}, samplers: map[string]*sampler{}, weights: map[string]*weights{},
	}
	if s.tokenizer == nil {
		if s.tokenizer, err = tokenizer.Load(o.Model.Dir); err != nil {
			return nil, err
		}
	}
	if s.store, err = openStore(o.Dir, o.KeepFree, o.Logger); err != nil {
		return nil, err
	}
	s.api = &web.API{
		Keys: ring, Key: func(r *http.Request) string { return r.Header.Get("X-API-Key") }, KeyExpected: "X-API-Key",
		Classify: classify, Shape: shape, Unsupported: ignored, MaxBody: o.MaxBody, Logger: o.Logger,
	}
	s.addRoutes()
	s.context, s.cancel = context.WithCancel(context.Background())
	s.work.Go(func() { s.queue.run(s.context, s.lanes) })
	s.work.Go(s.tend)
	return s, nil
}

// Drain refuses new calls and answers polls at once. Calls in progress continue. Call it before
// http.Server.Shutdown.
func (s *Server) Drain() {
	if !s.drained.Swap(true) {
		close(s.draining)
	}
}

// Close cancels all computation and waits for its end. Unsaved data is lost.
func (s *Server) Close() {
	s.Drain()
	s.cancel()
	s.work.Wait()
	s.store.close()
}

// lanes returns the lanes of all models.
func (s *Server) lanes() (all []*lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.models {
		all = append(all, m.lane)
	}
	return all
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.api.ServeHTTP(w, r) }

func (s *Server) addRoutes() {
	for _, r := range []struct {
		pattern string
		access  web.Access
		handle  func(*web.Call) error
	}{
		{"GET healthz", web.Everyone, s.health},
		{"POST client/config", web.Users, s.clientConfig},
		{"POST client/dynamic_config", web.Users, s.dynamicConfig},
		{"GET get_server_capabilities", web.Users, s.capabilities},
		{"POST telemetry", web.Users, s.telemetry},

		{"POST create_session", web.Users, s.createSession},
		{"POST session_heartbeat", web.Users, s.heartbeat},
		{"GET sessions", web.Users, s.listSessions},
		{"GET sessions/{session}", web.Users, s.getSession},
		{"POST sessions/{session}/finish", web.Users, s.finishSession},

		{"POST create_model", web.Users, s.createModel},
		{"POST get_info", web.Users, s.getInfo},
		{"POST forward_backward", web.Users, s.forwardBackward},
		{"POST optim_step", web.Users, s.optimStep},
		{"POST save_weights", web.Users, s.saveWeights},
		{"POST save_weights_for_sampler", web.Users, s.saveForSampler},
		{"POST save_weights_external", web.Users, s.saveExternal},
		{"POST load_weights", web.Users, s.loadWeights},
		{"POST retrieve_future", web.Users, s.retrieve},

		{"POST create_sampling_session", web.Users, s.createSampler},
		{"GET samplers/{sampler}", web.Users, s.getSampler},
		{"POST asample", web.Users, s.sample},

		{"POST weights_info", web.Users, s.weightsInfo},
		{"GET training_runs", web.Users, s.listRuns},
		{"GET training_runs/{run}", web.Users, s.getRun},
		{"GET checkpoints", web.Users, s.listAll},
		{"GET training_runs/{run}/checkpoints", web.Users, s.listCheckpoints},
		{"DELETE training_runs/{run}/checkpoints/{kind}/{name}", web.Users, s.deleteCheckpoint},
		{"PUT training_runs/{run}/checkpoints/{kind}/{name}/ttl", web.Users, s.setTTL},
		{"GET training_runs/{run}/checkpoints/{kind}/{name}/external_weights_urls", web.Users, s.externalURLs},
		{"GET external_weights/{run}/{name}/{file}", web.Everyone, s.download}, // the signature authorizes the client
	} {
		method, path, _ := strings.Cut(r.pattern, " ")
		s.api.Handle(method+" "+root+path, r.access, r.handle)
	}
	for _, path := range []string{"auth/token", "retrieve_futures", "join_sampling_session", "cancel_future", "create_custom_loss", "copy_weights", "unload_model", "sessions/search"} {
		s.api.Handle("POST "+root+path, web.Users, func(*web.Call) error { return unsupported("%s", path) })
	}
}

// ignored holds the fields of clients that have no effect.
var ignored = map[string]web.Field{"type": web.NoOp, "sdk_version": web.NoOp, "tags": web.NoOp, "allow_metadata_only": web.NoOp}

// root is the path prefix of the protocol.
const root = "/api/v1/"
