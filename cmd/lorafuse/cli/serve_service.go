package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	assembly "github.com/lorafuse/lorafuse/internal/serve/service"
	"github.com/lorafuse/lorafuse/internal/serve/traces"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
)

// service is the model that a server offers, and its API.
type service struct {
	handler http.Handler
	// drain rejects new requests and waits for the current ones, or until ctx ends.
	drain func(ctx context.Context) error
	cut   func()       // ends them with an error
	lost  <-chan error // gets why no request will ever be answered again

	name        string // of the model
	adapters    []string
	cacheTokens int
	maxLength   int

	session  *session
	api      *assembly.Service
	engines  *batching.Group // nil if the model computes embeddings
	embedder *embed.Embedder // nil if the model generates text
}

// openService opens the model and everything that must be ready at startup.
func (a *app) openService(ctx context.Context, f *serveFlags, setup served, log *slog.Logger) (_ *service, err error) {
	dir, err := a.resolve(ctx, f.command, f.model, hub.Options{})
	if err != nil {
		return nil, err
	}
	s := &service{name: f.name, cut: func() {}}
	if s.name == "" {
		s.name = modelName(f.model, dir)
	}
	o := f.options(s.name, setup, log)
	if info, err := os.Stat(f.model); err != nil || !info.IsDir() {
		o.HubName = f.model
	}
	if f.traceURL != "" {
		if o.Traces, err = traces.New(traces.Options{URL: f.traceURL, Model: s.name, Version: o.Version, Logger: log}); err != nil {
			return nil, fmt.Errorf("--trace-url: %w", err)
		}
	}
	f.model = dir
	text, err := assembly.GeneratesText(dir)
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
	o.Model = s.session.model.Model
	if text {
		var texts *pretrained.Texts
		if texts, err = s.session.model.Texts("--chat-template", f.template); err == nil {
			o.Tokenizer, o.Template = texts.Tokenizer, texts.Template
			err = a.openEngines(ctx, f, setup, s, &o)
		}
	} else if s.embedder, err = embed.New(ctx, s.session.dev, s.session.model.Model, nil, embed.Options{}); err == nil {
		o.Embedder, s.maxLength = s.embedder, s.embedder.MaxLength()
	}
	if err != nil {
		return nil, err
	}
	if s.api, err = assembly.New(o); err != nil {
		return nil, inServeFlags(err)
	}
	s.handler, s.drain, s.lost = s.api, s.api.Drain, s.api.Lost()
	for _, dev := range s.session.devices {
		a.loaded(dev)
	}
	return s, nil
}

// options returns the options that flags set, without the model.
func (f *serveFlags) options(name string, setup served, log *slog.Logger) assembly.Options {
	return assembly.Options{
		Options: serve.Options{
			Name: name, Keys: setup.keys.users, AdminKeys: setup.keys.admins, AllowAdapterUpdates: f.updates, Origins: f.origins, MaxResponses: setup.responses,
			SharePrefixCache: f.sharePrefixCache, OneTemplate: f.template != "", Logger: log, Version: readVersion().Version,
		},
		TrainDir: f.trainDir, TrainJobs: f.trainJobs, MaxFile: setup.limits.file, MaxFiles: setup.limits.files, TemplateFile: f.template, AdaptersDir: f.adaptersDir,
	}
}

// openEngines opens an engine on each device and loads adapters.
func (a *app) openEngines(ctx context.Context, f *serveFlags, setup served, s *service, o *assembly.Options) (err error) {
	o.Hooks = &assembly.Hooks{}
	s.engines, err = batching.NewGroup(ctx, s.session.devices, s.session.model.Model, batching.Options{
		MaxLength: f.maxLength, MaxTexts: f.texts, MaxBatchTokens: f.batchTokens, CacheTokens: f.cacheTokens, MaxQueue: f.queue,
		Adapters:   lora.RegistryOptions{Open: dialects.Opener(s.session.model.Model), Root: f.adaptersDir, Find: o.Hooks.Find, Tokenizer: o.Tokenizer, HostBytes: setup.hostBytes, MaxResident: f.resident},
		TrainShare: f.trainShare, OnStep: o.Hooks.OnStep,
	})
	if err != nil {
		return f.blame(err)
	}
	o.Engines, s.cut = s.engines, s.engines.Close
	if err := a.loadAdapters(ctx, s, setup.adapters); err != nil {
		return err
	}
	a.noteSkipped(s.engines.Adapters().Skipped())
	stats := s.engines.Stats()
	s.cacheTokens, s.maxLength = stats.Pages.Pages*stats.PageRows, s.engines.MaxLength()
	return nil
}

// inServeFlags rewords an error about an option as one about its flag.
func inServeFlags(err error) error {
	option, ok := errors.AsType[*assembly.OptionError](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("--train-dir: %w", option.Err)
	if errors.Is(err, tuning.ErrInUse) {
		return &failure{err}
	}
	return err
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

// loadAdapters loads the adapters that flags name.
func (a *app) loadAdapters(ctx context.Context, s *service, adapters []namedDir) error {
	began := time.Now()
	for i, x := range adapters {
		if x.name == s.name {
			return fmt.Errorf("--adapter: %q is the name of the model; --served-model-name changes that", x.name)
		}
		if _, err := s.engines.Adapters().Load(ctx, x.name, x.dir); err != nil {
			if errors.Is(err, lora.ErrFull) {
				return fmt.Errorf("--adapter %s, --adapter-host-memory: %w", x.name, err)
			}
			return fmt.Errorf("--adapter %s: %w", x.name, err)
		}
		s.adapters = append(s.adapters, x.name)
		a.steps("reading adapters", i+1, len(adapters), began)
	}
	for _, info := range s.engines.Adapters().List() {
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

// vectorsOnly rejects flags that apply to text generation only.
func (f *serveFlags) vectorsOnly() error {
	if f.given("devices") {
		return fmt.Errorf("--devices: not supported for the embedding model %s, which is served on one device", f.model)
	}
	for _, name := range []string{
		"adapter", "adapters-dir", "allow-adapter-updates", "max-loras", "adapter-host-memory",
		"chat-template", "max-num-seqs", "max-num-batched-tokens", "cache-tokens", "max-model-len", "max-queue", "train-share", "share-prefix-cache", "max-responses-size",
		"train-dir", "train-jobs", "max-file-size", "max-files-size",
	} {
		if f.given(name) {
			return fmt.Errorf("--%s: not supported for the embedding model %s; lorafuse merge merges an adapter into its model", name, f.model)
		}
	}
	return nil
}

// devices returns the names of the devices.
func (s *service) devices() (names []string) {
	for _, dev := range s.session.devices {
		names = append(names, dev.Info().String())
	}
	return names
}

func (s *service) close() {
	if s.api != nil {
		s.api.Close()
	}
	if s.engines != nil {
		s.engines.Close()
	}
	if s.embedder != nil {
		s.embedder.Close()
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
