package train

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// Base is a model on a device that several runs share, so its weights are loaded once.
// Runs may follow each other or run concurrently, each on its own goroutine; they
// alternate by micro-batches and updates. The runs do not affect each other's results.
type Base struct {
	dir  string
	host *host.Host // schedules the runs

	mu        sync.Mutex // guards the fields below, which are read when the first run needs them
	tokenizer *tokenizer.Tokenizer
	weights   string // see weightsIdentity
}

// NewBase returns the base of a host whose model was opened from the folder dir. The
// caller keeps ownership of the host, and must close it after the runs.
func NewBase(h *host.Host, dir string) *Base { return &Base{dir: dir, host: h} }

// New opens a run on the base, like [New]. Everything that the run needs in addition to
// the model is on the device until Close. The base determines the model, the device and
// their settings, whatever the configuration says (backend, threads, precision,
// batch_invariant, quantize, pack and load); adapters record c's model as the name of
// the base model. Errors: ErrTask for a task that needs a model of its own.
func (b *Base) New(ctx context.Context, c *config.Config, o Observer) (*Run, error) {
	own := b.settings(c)
	if err := validate(own); err != nil {
		return nil, err
	}
	if tasks := config.JobTasks(); !slices.Contains(tasks, string(own.Task)) {
		return nil, fmt.Errorf("train: task: %w: found %s, expected %s: the model is opened for language", ErrTask, own.Task, suggest.Or(tasks))
	}
	return b.run(own, o).open(ctx, true)
}

// run returns a new run on the base, still to be opened.
func (b *Base) run(c *config.Config, o Observer) *Run {
	return &Run{Setup: Setup{cfg: c, observer: o, dev: b.host.Device(), model: b.host.Model(), base: b}}
}

// settings returns the configuration of a run on the base.
func (b *Base) settings(c *config.Config) *config.Config {
	own, byDefault, info := *c, config.Default(), b.host.Info()
	if own.Model == "" {
		own.Model = b.dir
	}
	own.Precision, own.BatchInvariant = info.Precision, info.BatchInvariant
	own.Backend, own.Threads, own.Load, own.Pack = byDefault.Backend, byDefault.Threads, byDefault.Load, backend.PackNever
	own.Quantize = quant.None
	if q := b.host.Model().Quantization(); !q.Stored && len(q.Weights) > 0 {
		own.Quantize = quant.Method(quant.Name(q.DType))
	}
	return &own
}

// Tokenizer returns the tokenizer of the model.
func (b *Base) Tokenizer() (t *tokenizer.Tokenizer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokenizer == nil {
		b.tokenizer, err = tokenizer.Load(b.dir)
	}
	return b.tokenizer, err
}

// weightsIdentity returns the identity of the model's weights.
func (b *Base) weightsIdentity() (id string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.weights == "" {
		b.weights, err = WeightsIdentity(b.host.Model())
	}
	return b.weights, err
}
