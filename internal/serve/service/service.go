// Package service assembles what a server offers for one model: OpenAI's API and the web page of
// package serve, fine-tuning jobs, Tinker's API, metrics and traces. [New] returns a [Service],
// which is an http.Handler.
package service

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/metrics"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
	"github.com/lorafuse/lorafuse/internal/serve/traces"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/serve"
)

// Options configure a service. The caller closes the engines, the embedder and the model, after the
// service.
type Options struct {
	serve.Options // without Engine, Lost, Tuning, Visible and MaxLength, which New sets

	// Engines generate text and call Hooks. Nil means that Embedder is served.
	Engines *batching.Group
	Hooks   *Hooks

	// TrainDir is the folder for files, jobs, Tinker's runs and their adapters. Empty means that
	// clients cannot train.
	TrainDir string
	// TrainJobs is the number of jobs that train concurrently. Zero means 1.
	TrainJobs int
	// MaxFile and MaxFiles are the most bytes of an uploaded file and of all. Zero means the
	// defaults of package tuning.
	MaxFile, MaxFiles int64
	// TemplateFile is the chat template of jobs. Empty means that of the model.
	TemplateFile string
	// AdaptersDir is the folder of other adapters, whose names jobs do not take.
	AdaptersDir string
	// HubName is the model's name on the Hub. Tinker's clients load the tokenizer from it. Empty
	// means the model's folder.
	HubName string

	Traces *traces.Traces // closed by the service; nil means none
}

// Hooks connect an engine to its service, which is made after the engine. The zero value is
// ready to use.
type Hooks struct{ service atomic.Pointer[Service] }

// Find returns the folder of an adapter that a job has trained.
func (h *Hooks) Find(name string) (dir string, ok bool) {
	if s := h.service.Load(); s != nil && s.tuning != nil {
		return s.tuning.Find(name)
	}
	return "", false
}

// OnStep counts a step of the engine.
func (h *Hooks) OnStep(step batching.Step) {
	if s := h.service.Load(); s != nil {
		s.metrics.Step(step)
	}
}

// OptionError is an error about an option.
type OptionError struct {
	Option string
	Err    error
}

// Error implements error.
func (e *OptionError) Error() string { return "option " + e.Option + ": " + e.Err.Error() }

// Unwrap implements the interface of package errors.
func (e *OptionError) Unwrap() error { return e.Err }

// Service is an http.Handler. It is safe for concurrent use.
type Service struct {
	handler http.Handler
	server  *serve.Server
	engines *batching.Group  // nil if it serves embeddings
	metrics *metrics.Metrics // of the engines
	tuning  *tuning.Service  // nil if clients cannot train
	beside  []*host.Host     // on which jobs train, one on each device
	tinker  *tinker.Server   // nil if clients cannot train
	closing []func()
	lost    chan error
}

// New returns a service. It fails with OptionError and with errors of the assembled packages.
func New(o Options) (_ *Service, err error) {
	s := &Service{lost: make(chan error, 1)}
	if o.Traces != nil {
		s.closing = append(s.closing, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			o.Traces.Close(ctx)
		})
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if o.Engines == nil {
		err = s.serveEmbeddings(o)
	} else {
		err = s.serveText(o)
	}
	if err == nil && o.Traces != nil {
		s.handler = o.Traces.Handler(s.handler)
	}
	return s, err
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Lost returns a channel that receives an error if all devices are lost, so all requests fail.
func (s *Service) Lost() <-chan error { return s.lost }

// Drain refuses new requests and waits for the current ones, or until ctx ends. Jobs stop at a
// checkpoint.
func (s *Service) Drain(ctx context.Context) error {
	s.server.Drain()
	if s.tinker != nil {
		s.tinker.Drain()
	}
	if s.tuning != nil {
		s.tuning.Stop()
	}
	if s.engines == nil {
		return nil // http.Server.Shutdown waits for the requests
	}
	return s.engines.Drain(ctx)
}

// Close stops jobs and frees what the service has opened. No request may be under way.
func (s *Service) Close() {
	for len(s.closing) > 0 {
		last := len(s.closing) - 1
		s.closing[last]()
		s.closing = s.closing[:last]
	}
}

func (s *Service) serveEmbeddings(o Options) (err error) {
	o.MaxLength = o.Embedder.MaxLength()
	if s.server, err = serve.New(o.Options); err != nil {
		return err
	}
	m, routes := metrics.NewVectors(o.Name), http.NewServeMux()
	routes.Handle("GET /metrics", m)
	routes.Handle("/", m.Handler(s.server))
	s.handler = routes
	return nil
}

func (s *Service) serveText(o Options) (err error) {
	if err := s.openTuning(&o); err != nil {
		return err
	}
	s.engines, o.MaxLength, o.Lost = o.Engines, o.Engines.MaxLength(), o.Engines.Lost
	s.metrics = metrics.New(metrics.Options{Model: o.Name, MaxLength: o.MaxLength, Stats: s.engines.Stats, Devices: s.engines.Devices})
	o.Hooks.service.Store(s)
	submit := s.metrics.Watch(s.engines.Submit)
	if o.Traces != nil {
		submit = o.Traces.Watch(submit)
	}
	o.Engine = &watched{Group: s.engines, submit: submit, devices: o.Lost, lost: s.lost, logger: cmp.Or(o.Logger, slog.Default()), logged: map[int]bool{}}
	o.Visible = func(who keys.Client, adapter string) bool { return s.tinker == nil || s.tinker.Visible(who, adapter) }
	if s.server, err = serve.New(o.Options); err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", s.metrics)
	routes.Handle("/", s.server)
	s.handler = routes
	if o.TrainDir == "" {
		return nil
	}
	s.startTuning(o)
	if err := s.openTinker(o); err != nil {
		return err
	}
	routes.Handle("/api/v1/", s.tinker)
	return nil
}

// watched is a group of engines whose requests are counted and that reports lost devices.
type watched struct {
	*batching.Group
	submit  batching.Submit
	devices func() []error // see Group.Lost
	lost    chan<- error   // gets the error of a device if none is left
	logger  *slog.Logger

	mu     sync.Mutex
	logged map[int]bool // devices whose loss has been logged
}

// Submit implements serve.Engine.
func (e *watched) Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
	return func(yield func(batching.Token, error) bool) {
		for t, err := range e.submit(ctx, r) {
			if errors.Is(err, backend.ErrLost) {
				e.report(err)
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// report logs the devices that have been lost since the last call, and sends err if none is left.
func (e *watched) report(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	left := 0
	for i, lost := range e.devices() {
		switch {
		case lost == nil:
			left++
		case !e.logged[i]:
			e.logged[i] = true
			e.logger.Error("a device is lost", "error", lost)
		}
	}
	if left > 0 {
		return
	}
	select {
	case e.lost <- err:
	default: // another request has reported it
	}
}

// openTuning opens the files and jobs in TrainDir.
func (s *Service) openTuning(o *Options) (err error) {
	if o.TrainDir == "" {
		return nil
	}
	t := tuning.Options{
		Dir: o.TrainDir, Name: o.Name, Model: o.Model, Template: o.TemplateFile, MaxFile: o.MaxFile, MaxFiles: o.MaxFiles, Logger: o.Logger,
		Data: data.Options{Tokenizer: o.Tokenizer},
		Taken: func(name string) bool {
			if o.AdaptersDir == "" {
				return false
			}
			_, err := os.Stat(filepath.Join(o.AdaptersDir, filepath.FromSlash(name)))
			return err == nil
		},
	}
	if o.Template != nil {
		t.Data.Template = data.Chat(o.Template)
	}
	if s.tuning, err = tuning.Open(t); err != nil {
		return &OptionError{"TrainDir", err}
	}
	o.Tuning = s.tuning
	s.closing = append(s.closing, func() {
		s.tuning.Close()
		for _, h := range s.beside {
			h.Close()
		}
	})
	return nil
}

// startTuning starts to train jobs on the served model.
func (s *Service) startTuning(o Options) {
	t := &balancedTrainer{}
	for i := range s.engines.Size() {
		h := s.engines.Beside(i)
		s.beside = append(s.beside, h)
		t.devices = append(t.devices, &trainerDevice{Trainer: baseTrainer{train.NewBase(h, o.Model.Dir)}})
	}
	s.tuning.Start(s.engines.Adapters(), t, max(1, o.TrainJobs))
}

// openTinker opens Tinker's API, which trains on the first device and keeps its data in TrainDir.
func (s *Service) openTinker(o Options) error {
	h := s.engines.Beside(0)
	sessions, err := tinker.NewSessions(h)
	if err != nil {
		h.Close()
		return err
	}
	s.closing = append(s.closing, func() {
		if s.tinker != nil {
			s.tinker.Close()
		}
		h.Close()
	})
	s.tinker, err = tinker.New(tinker.Options{
		Engine: o.Engine, Trainer: sessions, Model: o.Model, Name: o.Name, Tokenizer: o.Tokenizer, TokenizerID: o.HubName, MaxLength: o.MaxLength,
		Dir: filepath.Join(o.TrainDir, "tinker"), Keys: o.Keys, AdminKeys: o.AdminKeys, SharePrefixCache: o.SharePrefixCache,
		OnSamplerGap: s.metrics.SetSamplerGap, Logger: o.Logger,
	})
	return err
}
