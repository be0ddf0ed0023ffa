package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/metrics"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
	"github.com/lorafuse/lorafuse/internal/serve/traces"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// service holds the model and the APIs that a server offers.
type service struct {
	handler http.Handler
	// drain rejects new requests and waits for the current ones, or until ctx ends.
	drain func(ctx context.Context) error
	cut   func()     // ends them with an error
	lost  chan error // gets why no request will ever be answered again

	name        string // of the model
	adapters    []string
	cacheTokens int
	maxLength   int

	session  *session
	traces   *traces.Traces   // nil if tracing is off
	engine   *batching.Engine // nil if the model computes embeddings
	tinker   func()           // closes the Tinker API; nil if it is not served
	embedder *embed.Embedder  // nil if the model generates text
	tuning   *tuning.Service  // nil if training is off
	beside   *host.Host       // that jobs are trained with
}

// openService opens the model and everything that must be ready at startup.
func (a *app) openService(ctx context.Context, f *serveFlags, setup served, log *slog.Logger) (_ *service, err error) {
	dir, err := a.resolve(ctx, f.command, f.model, hub.Options{})
	if err != nil {
		return nil, err
	}
	s := &service{name: f.name, lost: make(chan error, 1)}
	if s.name == "" {
		s.name = modelName(f.model, dir)
	}
	asked := f.model
	if f.traceURL != "" {
		o := traces.Options{URL: f.traceURL, Model: s.name, Version: readVersion().Version, Logger: log}
		if s.traces, err = traces.New(o); err != nil {
			return nil, fmt.Errorf("--trace-url: %w", err)
		}
		defer func() {
			if s.handler != nil {
				s.handler = s.traces.Handler(s.handler)
			}
		}()
	}
	f.model = dir
	text, err := continuesText(dir)
	if err != nil {
		return nil, err
	}
	if !text {
		f.part = model.Body
		if err := f.vectorsOnly(); err != nil {
			return nil, err
		}
	}
	if s.session, err = a.open(ctx, &f.modelFlags); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if text {
		err = a.openEngine(ctx, f, setup, s, asked, log)
	} else {
		err = a.openEmbedder(ctx, f, setup, s, log)
	}
	if err == nil {
		a.loaded(s.session.dev)
	}
	return s, err
}

// openEngine serves text.
func (a *app) openEngine(ctx context.Context, f *serveFlags, setup served, s *service, asked string, log *slog.Logger) error {
	o := serve.Options{
		Model: s.session.model, Name: s.name, Keys: setup.keys.users, AdminKeys: setup.keys.admins,
		AllowAdapterUpdates: f.updates, Origins: f.origins, Logger: log, Version: readVersion().Version,
		SharePrefixCache: f.sharePrefixCache, OneTemplate: f.template != "",
	}
	var t *tinker.Server
	o.Visible = func(who keys.Client, adapter string) bool { return t == nil || t.Visible(who, adapter) }
	var err error
	if o.Tokenizer, err = tokenizer.Load(s.session.model.Dir); err != nil {
		return err
	}
	if o.Template, err = chat.Find(f.template, o.Tokenizer.SpecialTokens(), s.session.model.Dir); err != nil {
		return fmt.Errorf("--chat-template: %w", err)
	}
	if err := f.openTuning(setup.limits, s, &o, log); err != nil {
		return err
	}
	var m *metrics.Metrics
	s.engine, err = batching.New(ctx, s.session.dev, s.session.model, batching.Options{
		MaxLength: f.maxLength, MaxTexts: f.texts, MaxBatchTokens: f.batchTokens, CacheTokens: f.cacheTokens, MaxQueue: f.queue,
		Adapters:   lora.RegistryOptions{Root: f.adaptersDir, Find: s.find, Tokenizer: o.Tokenizer, HostBytes: setup.hostBytes, MaxResident: f.resident},
		TrainShare: f.trainShare,
		OnStep:     func(step batching.Step) { m.Step(step) },
	})
	if err != nil {
		return f.blame(err)
	}
	m = metrics.New(metrics.Options{Model: s.name, MaxLength: s.engine.MaxLength(), Stats: s.engine.Stats})
	if err := a.loadAdapters(ctx, s, setup.adapters); err != nil {
		return err
	}
	a.noteSkipped(s.engine.Adapters().Skipped())
	stats := s.engine.Stats()
	s.cacheTokens, s.maxLength = stats.Pages.Pages*stats.PageRows, s.engine.MaxLength()
	submit := m.Watch(s.engine.Submit)
	if s.traces != nil {
		submit = s.traces.Watch(submit)
	}
	o.Engine, o.MaxLength = observed{s.engine, submit, s.lost}, s.maxLength
	server, err := serve.New(o)
	if err != nil {
		return err
	}
	f.startTuning(s)
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", m)
	routes.Handle("/", server)
	s.handler = routes
	drain := server.Drain
	if f.trainDir != "" {
		if t, s.tinker, err = f.openTinker(setup, s, o.Tokenizer, asked, o.Engine, m.SetSamplerGap, log); err != nil {
			return err
		}
		routes.Handle("/api/v1/", t)
		drain = func() {
			server.Drain()
			t.Drain()
		}
	}
	s.drain = func(ctx context.Context) error {
		drain()
		if s.tuning != nil {
			s.tuning.Stop()
		}
		return s.engine.Drain(ctx)
	}
	s.cut = s.engine.Close
	return nil
}

// blame adds the flags that an engine error may be about.
func (f *serveFlags) blame(err error) error {
	if !errors.Is(err, generate.ErrOption) && !errors.Is(err, generate.ErrTooLong) {
		return err
	}
	var flags []string
	for _, name := range []string{"max-model-len", "max-num-seqs", "max-num-batched-tokens", "cache-tokens"} {
		if f.given(name) {
			flags = append(flags, "--"+name)
		}
	}
	return fmt.Errorf("%s: %w", strings.Join(flags, ", "), err)
}

// observed is an engine that counts requests and reports its end.
type observed struct {
	*batching.Engine
	submit batching.Submit
	lost   chan<- error
}

func (o observed) Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
	return func(yield func(batching.Token, error) bool) {
		for t, err := range o.submit(ctx, r) {
			if errors.Is(err, backend.ErrLost) {
				select {
				case o.lost <- err:
				default: // another request has said so
				}
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// loadAdapters loads the adapters that flags name.
func (a *app) loadAdapters(ctx context.Context, s *service, adapters []namedDir) error {
	began := time.Now()
	for i, x := range adapters {
		if x.name == s.name {
			return fmt.Errorf("--adapter: %q is the name of the model; --served-model-name changes that", x.name)
		}
		if _, err := s.engine.Adapters().Load(ctx, x.name, x.dir); err != nil {
			if errors.Is(err, lora.ErrFull) {
				return fmt.Errorf("--adapter %s, --adapter-host-memory: %w", x.name, err)
			}
			return fmt.Errorf("--adapter %s: %w", x.name, err)
		}
		s.adapters = append(s.adapters, x.name)
		a.steps("reading adapters", i+1, len(adapters), began)
	}
	for _, info := range s.engine.Adapters().List() {
		for _, w := range info.Versions[0].Warnings {
			a.note("note     adapter %s: %s", info.Name, w)
		}
	}
	return nil
}

// noteSkipped lists the folders of --adapters-dir that are not offered as models.
func (a *app) noteSkipped(skipped map[string]error) {
	if len(skipped) == 0 {
		return
	}
	const most = 4
	var why []string
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if len(why) == most {
			why = append(why, "…")
			break
		}
		why = append(why, fmt.Sprintf("%q: %s", name, strings.TrimPrefix(skipped[name].Error(), "lora: ")))
	}
	a.note("note     --adapters-dir: %d adapters are not offered as models: %s", len(skipped), strings.Join(why, "; "))
}

// openEmbedder serves vectors.
func (a *app) openEmbedder(ctx context.Context, f *serveFlags, setup served, s *service, log *slog.Logger) (err error) {
	if s.embedder, err = embed.New(ctx, s.session.dev, s.session.model, nil, embed.Options{}); err != nil {
		return err
	}
	s.maxLength = s.embedder.MaxLength()
	server, err := serve.New(serve.Options{
		Embedder: s.embedder, Model: s.session.model, Name: s.name, MaxLength: s.maxLength,
		Keys: setup.keys.users, Origins: f.origins, Logger: log, Version: readVersion().Version,
	})
	if err != nil {
		return err
	}
	m, routes := metrics.NewVectors(s.name), http.NewServeMux()
	routes.Handle("GET /metrics", m)
	routes.Handle("/", m.Handler(server))
	s.handler = routes
	s.drain = func(context.Context) error {
		server.Drain()
		return nil // the listener waits for the rest
	}
	s.cut = func() {}
	return nil
}

// vectorsOnly rejects flags that apply to text generation only.
func (f *serveFlags) vectorsOnly() error {
	for _, name := range []string{
		"adapter", "adapters-dir", "allow-adapter-updates", "max-loras", "adapter-host-memory",
		"chat-template", "max-num-seqs", "max-num-batched-tokens", "cache-tokens", "max-model-len", "max-queue", "train-share", "share-prefix-cache",
		"train-dir", "train-jobs", "max-file-size", "max-files-size",
	} {
		if f.given(name) {
			return fmt.Errorf("--%s: not supported for the embedding model %s; lorafuse merge merges an adapter into its model", name, f.model)
		}
	}
	return nil
}

func (s *service) close() {
	s.closeTuning()
	if s.tinker != nil {
		s.tinker()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.embedder != nil {
		s.embedder.Close()
	}
	if s.traces != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		s.traces.Close(ctx)
	}
	s.session.close()
}

// modelName returns the name of a model without an explicit name: its Hub name or its folder.
func modelName(asked, dir string) string {
	if info, err := os.Stat(asked); err == nil && info.IsDir() {
		if whole, err := filepath.Abs(dir); err == nil {
			return filepath.Base(whole)
		}
	}
	name, _, _ := strings.Cut(asked, "@")
	return name
}

// continuesText reports whether the model in dir is a language model that is meant as
// one, and not for vectors.
func continuesText(dir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, "modules.json")); err == nil {
		return false, nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // opening the model reports errors
	}
	if err != nil {
		return false, err
	}
	var c struct {
		Architectures []string `json:"architectures"`
		Causal        *bool    `json:"is_causal"`
		Bidirectional bool     `json:"use_bidirectional_attention"`
	}
	if json.Unmarshal(raw, &c) != nil || len(c.Architectures) == 0 {
		return true, nil
	}
	return strings.HasSuffix(c.Architectures[0], "ForCausalLM") && (c.Causal == nil || *c.Causal) && !c.Bidirectional, nil
}
