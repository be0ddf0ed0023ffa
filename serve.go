package lorafuse

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/serve/service"
	"github.com/lorafuse/lorafuse/internal/serve/traces"
	"github.com/lorafuse/lorafuse/serve"
)

// ServeOptions configure [Model.Handler].
type ServeOptions struct {
	Name string // of the model in the API. Empty means the name of its folder.
	// HubName is the model's name on the Hub. Tinker's clients load the tokenizer from it. Empty
	// means the model's folder, which works on one machine.
	HubName string
	// Keys are the API keys of clients, each KEY or NAME KEY; what a client creates belongs to the
	// name. Without keys everyone may ask. Only AdminKeys may load and unload adapters, if there are any.
	Keys, AdminKeys []string
	// TrainDir is a folder for files, fine-tuning jobs, Tinker's runs and their adapters. Empty
	// means that clients cannot train.
	TrainDir  string
	TrainJobs int // that train concurrently. Zero means 1.
	// MaxFile and MaxFiles are the most bytes of an uploaded file and of all. Zero means 512 MiB
	// and 16 times MaxFile.
	MaxFile, MaxFiles int64
	// AllowAdapterUpdates lets clients unload adapters, and load those below Options.AdaptersDir.
	AllowAdapterUpdates bool
	// SharePrefixCache lets clients reuse the cached prefixes of others, which response times reveal.
	SharePrefixCache bool
	// AllowedHosts lists host names that a server without Keys accepts, in addition to localhost
	// and IP addresses. This defends against pages of other sites (DNS rebinding). "*" is all.
	AllowedHosts []string
	Origins      []string // web pages that may ask, such as https://chat.example.com; "*" is all
	TraceURL     string   // of an OpenTelemetry collector. Empty means no traces.
	Version      string   // of the program, at /version
	// Logger gets one line per request. Nil means slog.Default().
	Logger *slog.Logger
}

// Handler serves the model and its adapters as lorafuse serve does: OpenAI's API (chat
// completions, completions, files and fine-tuning jobs; embeddings for an encoder), Tinker's API,
// a web page, metrics and health checks. Clients select adapters loaded by LoadAdapter by name.
// It refuses requests that a page of another site may have sent. The model must stay open; Close
// stops jobs at a checkpoint.
func (m *Model) Handler(ctx context.Context, o ServeOptions) (http.Handler, error) {
	s, err := m.serve(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: serve: %w", err)
	}
	m.mu.Lock()
	m.services = append(m.services, s)
	m.mu.Unlock()
	g := serve.Guard{Hosts: o.AllowedHosts, Addresses: true, Origins: o.Origins}
	if len(o.Keys) > 0 {
		g.Hosts = []string{"*"}
	}
	h, err := g.Protect(s)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: option Origins: %w", err)
	}
	return h, nil
}

func (m *Model) serve(ctx context.Context, o ServeOptions) (*service.Service, error) {
	if o.Name == "" {
		dir, err := filepath.Abs(m.model.Dir)
		if err != nil {
			return nil, err
		}
		o.Name = filepath.Base(dir)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	so := service.Options{
		Options: serve.Options{
			Model: m.model.Model, Name: o.Name, Tokenizer: m.texts.Tokenizer, Template: m.texts.Template, OneTemplate: m.options.ChatTemplate != "",
			Keys: o.Keys, AdminKeys: o.AdminKeys, AllowAdapterUpdates: o.AllowAdapterUpdates, SharePrefixCache: o.SharePrefixCache,
			Origins: o.Origins, Logger: o.Logger, Version: o.Version,
		},
		TrainDir: o.TrainDir, TrainJobs: o.TrainJobs, MaxFile: o.MaxFile, MaxFiles: o.MaxFiles,
		TemplateFile: m.options.ChatTemplate, AdaptersDir: m.options.AdaptersDir, HubName: o.HubName,
	}
	if text, err := service.GeneratesText(m.model.Dir); err != nil {
		return nil, err
	} else if text && m.generates() {
		so.Hooks = &m.hooks
		if so.Engines, err = m.open(ctx); err != nil {
			return nil, err
		}
	} else {
		m.mu.Lock()
		e, err := m.embedder(ctx, "")
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		so.Embedder = e.Embedder
	}
	if o.TraceURL != "" {
		var err error
		if so.Traces, err = traces.New(traces.Options{URL: o.TraceURL, Model: o.Name, Version: o.Version, Logger: o.Logger}); err != nil {
			return nil, err
		}
	}
	return service.New(so)
}
