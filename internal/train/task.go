package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrTask is wrapped if the data or the model do not suit the task.
var ErrTask = errors.New("not what the task needs")

// Task is a training task.
type Task struct {
	// Open opens the model and reads the data of a run.
	Open func(ctx context.Context, s *Setup) (*Material, error)
	// Try returns how to try out an adapter of a run.
	Try func(c *config.Config) Try
	// Card describes the adapters of the task.
	Card Card
}

// Try is a lorafuse command that uses an adapter.
type Try struct {
	Command string
	Model   []string // flags that name the model
	Input   string   // flags that give an input
}

var tasks = map[config.Task]Task{}

// Register adds a task. It panics if the task is registered already.
func Register(name config.Task, t Task) {
	if _, ok := tasks[name]; ok {
		panic("train: " + string(name) + " is registered twice")
	}
	tasks[name] = t
}

// TryOut returns how to try out an adapter of a run.
func TryOut(c *config.Config) Try { return tasks[c.Task].Try(c) }

// TryWith returns a command for adapters of the run's model.
func TryWith(command, input string) func(c *config.Config) Try {
	return func(c *config.Config) Try { return Try{command, []string{"--model", c.Model}, input} }
}

// openTask opens the task of the configuration.
func (r *Run) openTask(ctx context.Context) error {
	t, ok := tasks[r.cfg.Task]
	if !ok {
		return fmt.Errorf("train: task: %w: %s is not part of this program; add the import _ %q", ErrTask, r.cfg.Task, "github.com/lorafuse/lorafuse/internal/train/task")
	}
	m, err := t.Open(ctx, &r.Setup)
	if err != nil {
		return err
	}
	r.setMaterial(m)
	return nil
}

// Material holds the rows of a run, their loss, and the functions of a task that its run
// calls. Functions that are nil do nothing.
type Material struct {
	Train, Eval Rows // Eval is nil without evaluation
	Loss        trainer.Loss
	// Cut returns the same material in micro-batches that are cut into n parts each.
	Cut func(n int) (*Material, error)

	// Settings identify the rows and the keys of the task that affect results. A run resumes
	// only with the same settings. RowsBy identifies the tools and files that produced the
	// rows, to explain differences.
	Settings, RowsBy map[string]string
	// ModelNotes describe the model and Notes the rows, before training begins.
	ModelNotes, Notes []string

	// Targets returns the configuration of a new adapter with the defaults of the task.
	Targets func(c *lora.Config) *lora.Config
	// OpenAdapter opens the adapter to continue training. Nil calls dialects.OpenText.
	OpenAdapter func(path string, target lora.Model) (*lora.Adapter, error)
	// Save adds files to the folder of an adapter.
	Save func(dir string) error
	// Export writes the adapter for other tools, next to the folder of the adapter.
	Export func(dir string, s *lora.State) error

	// Prepare is called before the first step of this process, with the number of steps of
	// the whole run.
	Prepare func(ctx context.Context, e *Engine, steps int) error
	// Reserve returns the device memory that After needs, in bytes, next to the host's.
	Reserve func(h *host.Host, adapter *engine.Slot) (int64, error)
	// After is called after each step.
	After func(ctx context.Context, s Done) error
}

// Done is a finished step.
type Done struct {
	Step    int
	Last    bool
	Adapter *engine.Slot
	// Image and Text record samples.
	Image func(events.Image) error
	Text  func(events.Text) error
}

// setMaterial sets the material of the run.
func (r *Run) setMaterial(m *Material) {
	r.material, r.train, r.eval = m, m.Train, m.Eval
}

// openAdapter opens the adapter to continue training.
func (r *Run) openAdapter(target lora.Model) (*lora.Adapter, error) {
	if r.material.OpenAdapter != nil {
		return r.material.OpenAdapter(r.cfg.InitAdapter, target)
	}
	return dialects.OpenText(r.cfg.InitAdapter, r.model)
}

// saveAdapter writes the folder of an adapter.
func (r *Run) saveAdapter(dir string, s *lora.State, raw bool) error {
	if err := s.Save(dir, raw); err != nil || r.material.Save == nil {
		return err
	}
	return r.material.Save(dir)
}

// export writes the adapter for other tools into dir.
func (r *Run) export(dir string, s *lora.State) error {
	if r.material.Export == nil {
		return nil
	}
	return r.material.Export(dir, s)
}

// Setup holds the configuration of a run that is being opened, and opens its model and its
// device.
type Setup struct {
	cfg      *config.Config
	data     Data
	observer Observer

	index  int // of the device in its backend
	dev    backend.Device
	model  *model.Model
	shared *sharedModel // of ranks in one process, or nil
	group  *ranks.Group // of ranks that share the run, or nil
	base   *Base        // that the run shares with others; nil for a run alone
}

// Config returns the configuration of the run.
func (s *Setup) Config() *config.Config { return s.cfg }

// Data returns where the run reads its data.
func (s *Setup) Data() Data { return s.data }

// Base returns the model that the run shares with others, or nil.
func (s *Setup) Base() *Base { return s.base }

// Model returns the model, or nil before it is opened.
func (s *Setup) Model() *model.Model { return s.model }

// Note reports a message to the user.
func (s *Setup) Note(format string, args ...any) { s.observer.note(format, args...) }

// Progress reports the progress of a task.
func (s *Setup) Progress(task string, done, total int64) {
	if s.observer.Load != nil {
		s.observer.Load(task, done, total)
	}
}

// Resolve returns the folder of the model, which it downloads if necessary.
func (s *Setup) Resolve(ctx context.Context) (dir string, err error) {
	if s.base != nil {
		return s.base.dir, nil
	}
	return hub.Resolve(ctx, s.cfg.Model, s.Hub())
}

// Hub returns options that report downloads to the user.
func (s *Setup) Hub() hub.Options {
	return hub.Options{Progress: s.observer.Load, Warn: func(err error) { s.Note("%v", err) }}
}

// OpenDevice opens the device of the run, unless it is open.
func (s *Setup) OpenDevice() (dev backend.Device, err error) {
	if s.dev != nil {
		return s.dev, nil
	}
	options := s.cfg.DeviceOptions()
	options.Index = s.index
	options.Profile = s.observer.Profile
	if s.dev, err = backend.Open(s.cfg.Backend, options); errors.Is(err, backend.ErrLoad) {
		return nil, fmt.Errorf("load: %w", err)
	}
	return s.dev, err
}

// OpenModel opens a part of the model in dir, unless the run has a model. The model must
// have the loss of a task, if one is given.
func (s *Setup) OpenModel(dir string, part model.Part, tasks ...model.Task) error {
	if s.model != nil {
		return nil
	}
	if s.shared != nil {
		s.shared.mu.Lock()
		defer s.shared.mu.Unlock()
		if s.model = s.shared.m; s.model != nil {
			return nil
		}
	}
	m, err := model.OpenAs(dir, part)
	if err != nil {
		return err
	}
	if err = s.UseModel(m, tasks...); err == nil && s.shared != nil {
		s.shared.m = m
	}
	return err
}

// UseModel makes an opened model the run's, which closes it in the end. It checks the model
// like OpenModel, reports tensors of the checkpoint that the model does not read, and
// quantizes the model as the configuration says.
func (s *Setup) UseModel(m *model.Model, tasks ...model.Task) error {
	s.model = m
	for _, t := range tasks {
		if err := m.CheckTask(t); err != nil {
			return fmt.Errorf("train: task: %s: %w", s.cfg.Task, err)
		}
	}
	if line := m.UnreadLine(); line != "" {
		s.Note("note     %s", line)
	}
	return m.Quantize(s.cfg.Quantize, func(done, total int64) { s.Progress("quantizing weights", done, total) })
}
