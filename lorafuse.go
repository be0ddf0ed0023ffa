// Package lorafuse fine-tunes Hugging Face models with LoRA and runs them.
//
// [Open] opens a model from a folder or by its name on the Hugging Face Hub. A [Model]
// chats, completes, embeds, classifies and scores texts, alone or with any of its adapters;
// calls of many goroutines share batches. [OpenPipeline] opens a diffusion pipeline, which
// draws images. [FineTune] trains an adapter that PEFT loads, on files, rows in memory or
// images; [Model.NewTrainer] trains step by step with a loss of the caller's choice.
// [Model.Handler] serves a model over an OpenAI-compatible API. [Merge] writes an adapter
// into the weights of its model.
package lorafuse

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all" // the devices of this build
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/service"
	"github.com/lorafuse/lorafuse/lora"
)

// Errors for errors.Is. Other errors come from the packages underneath.
var (
	// ErrClosed is the error for calls of a model that is closed.
	ErrClosed = errors.New("the model is closed")
	// ErrOption is the error for an option that is out of range or unknown.
	ErrOption = errors.New("invalid option")
)

// Options configure [Open]. The zero value takes the best device and the types of the file.
type Options struct {
	// Device is cpu, cuda, metal or auto. Empty means auto.
	Device string
	// Threads of the CPU. Zero means one per core; results do not depend on it.
	Threads int
	// Precision of matrix multiplications: f32, bf16 or auto. Empty means auto.
	Precision string
	// Quantize makes the weights of linear layers smaller on load: none, int8, nf4 or fp8.
	// Empty means none.
	Quantize string
	// BatchInvariant makes the bits of a result independent of other sequences in the batch.
	// Only the CPU supports it.
	BatchInvariant bool
	// ChatTemplate is a file with a Jinja template for conversations. Empty means that of the
	// model, or of an adapter that has one.
	ChatTemplate string
	// MaxLength bounds prompt and answer together, in tokens. Zero means what the model and
	// the KV cache have room for.
	MaxLength int
	// MaxSeqs is the most sequences per batch. Zero means 32.
	MaxSeqs int
	// AdaptersDir is a folder of adapters. An adapter below it is loaded when a call names it.
	AdaptersDir string
	// Progress, if not nil, is told how far downloads are, in bytes.
	Progress func(file string, done, total int64)
}

// Model is an open model. Its methods are safe for concurrent use.
type Model struct {
	options Options
	method  quant.Method
	device  backend.Device
	model   *pretrained.Model
	texts   *pretrained.Texts

	mu          sync.Mutex
	closed      bool
	engine      *batching.Group
	adapters    map[string]string // folders, by name
	embedders   map[string]*embedder
	classifiers map[string]*classifier
	trainers    *trainers
	services    []*service.Service
	hooks       service.Hooks // of the engine, for the last service
}

// Open opens a model: a folder, or owner/name[@revision] on the Hugging Face Hub. The Hub's
// models are downloaded into the cache that all Hugging Face libraries share. Weights are
// mapped, not read. Close frees the model.
func Open(ctx context.Context, name string, o Options) (_ *Model, err error) {
	m := &Model{options: o, adapters: map[string]string{}, embedders: map[string]*embedder{}, classifiers: map[string]*classifier{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("lorafuse: open %s: %w", name, errors.Join(err, m.Close()))
		}
	}()
	if m.method, err = quant.ParseMethod(o.Quantize); err != nil {
		return nil, fmt.Errorf("option Quantize: %w", err)
	}
	if m.device, err = o.open(); err != nil {
		return nil, err
	}
	dir, err := hub.Resolve(ctx, name, hub.Options{Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	if m.model, err = pretrained.Open(dir, pretrained.Options{Quantize: m.method}); err == nil {
		m.texts, err = m.model.Texts("option ChatTemplate", o.ChatTemplate)
	}
	return m, err
}

// open opens the device.
func (o *Options) open() (backend.Device, error) {
	b := backend.Options{Threads: o.Threads, Precision: backend.AutoPrecision, BatchInvariant: o.BatchInvariant}
	if o.Threads < 0 || o.MaxLength < 0 || o.MaxSeqs < 0 {
		return nil, fmt.Errorf("%w: threads %d, max length %d, max seqs %d: expected 0 or more", ErrOption, o.Threads, o.MaxLength, o.MaxSeqs)
	}
	if o.Precision != "" {
		if err := b.Precision.UnmarshalText([]byte(o.Precision)); err != nil {
			return nil, fmt.Errorf("option Precision: %w", err)
		}
	}
	name := o.Device
	if name == "" {
		name = backend.Auto
	}
	return backend.Open(name, b)
}

// Close frees the model. Calls that are under way end with ErrClosed.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	for _, s := range m.services {
		s.Close()
	}
	for _, e := range m.embedders {
		e.close()
	}
	for _, c := range m.classifiers {
		c.close()
	}
	if m.trainers != nil {
		m.trainers.Close()
	}
	if m.engine != nil {
		m.engine.Close()
	}
	var errs []error
	if m.model != nil {
		errs = append(errs, m.model.Close())
	}
	if m.device != nil {
		errs = append(errs, m.device.Close())
	}
	return errors.Join(errs...)
}

// LoadAdapter loads the PEFT adapter in a folder and registers it under a name for later calls.
// Every tensor is checked: an adapter that does not fit the model, or would have no effect, is
// an error. Loading under a name in use replaces the adapter; running calls finish with the
// old one.
func (m *Model) LoadAdapter(ctx context.Context, name, dir string) error {
	var c *classifier // nil unless the adapter has a classification head
	if config, err := lora.ReadConfig(dir); err == nil && config.IsClassifier() {
		if err = lora.CheckName(name); err == nil {
			c, err = m.openClassifier(dir)
		}
		if err != nil {
			return fmt.Errorf("lorafuse: %w", err)
		}
	} else if m.generates() {
		e, err := m.open(ctx)
		if err != nil {
			return err
		}
		if _, err := e.Adapters().Load(ctx, name, dir); err != nil {
			return fmt.Errorf("lorafuse: %w", err)
		}
	} else if err := m.check(name, dir); err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adapters[name] = dir
	if e := m.embedders[name]; e != nil {
		e.close()
		delete(m.embedders, name)
	}
	if old := m.classifiers[name]; old != nil {
		old.close()
		delete(m.classifiers, name)
	}
	if c != nil {
		m.classifiers[name] = c
	}
	return nil
}

// check loads an adapter once to see that it fits.
func (m *Model) check(name, dir string) error {
	if err := lora.CheckName(name); err != nil {
		return err
	}
	x, err := m.model.Adapt(dir)
	if err != nil {
		return err
	}
	return x.Close()
}

// generates reports whether the model predicts tokens.
func (m *Model) generates() bool { return m.model.CheckTask(model.NextToken) == nil }

// open returns the engine, which is started by the first call that needs it.
func (m *Model) open(ctx context.Context) (*batching.Group, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.engine == nil {
		if err := m.model.CheckTask(model.NextToken); err != nil {
			return nil, fmt.Errorf("lorafuse: %w", err)
		}
		e, err := batching.NewGroup(ctx, []backend.Device{m.device}, m.model.Model, batching.Options{
			MaxLength: m.options.MaxLength, MaxTexts: m.options.MaxSeqs, OnStep: m.hooks.OnStep,
			Adapters: lora.RegistryOptions{Open: dialects.Opener(m.model.Model), Root: m.options.AdaptersDir, Find: m.hooks.Find, Tokenizer: m.texts.Tokenizer},
		})
		if err != nil {
			return nil, fmt.Errorf("lorafuse: %w", err)
		}
		m.engine = e
	}
	return m.engine, nil
}
