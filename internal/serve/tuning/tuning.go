// Package tuning implements fine-tuning jobs on the served model: the back end of OpenAI's files
// and fine-tuning API, without HTTP.
//
// A [Service] keeps files, jobs and their adapters in one folder. Acknowledged changes survive a
// crash: records are written in transactions, files and adapters are renamed into place when they
// are complete, and an interrupted job resumes from its last checkpoint. An adapter is loaded when
// its job has succeeded or when it is first requested, by [Service.Find].
package tuning

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// Trainer creates training runs on the served model. Several may run at the same time.
type Trainer interface {
	New(ctx context.Context, c *config.Config, o train.Observer) (Run, error)
}

// Run is a training run; *train.Run implements it.
type Run interface {
	Train(ctx context.Context) (*train.Summary, error)
	Close()
}

// Options configure a service.
type Options struct {
	Dir string // created if missing

	Model *model.Model // required; must stay open until the service is closed
	Name  string       // public model name
	// Data holds the model's tokenizer and template, for validating files.
	Data     data.Options
	Template string // file of Data.Template, if not the model's own
	// MaxLength is the maximum row length in tokens; longer rows are truncated. Zero means the
	// limit of the model.
	MaxLength int

	MaxFile int64 // bytes per file; 0 means 512 MiB
	// MaxFiles is the maximum total size of all files in bytes. Zero means 16 times MaxFile.
	// Results of jobs count, but are always written.
	MaxFiles int64
	// KeepFree is the number of bytes that uploads leave free on the disk. Zero means 1 GiB, or 5 %
	// of a smaller disk.
	KeepFree int64
	// SaveInterval is the maximum training time of a job that a crash can lose. Zero means one
	// minute.
	SaveInterval time.Duration
	// Taken reports whether a name is reserved, in addition to the names that the registry has
	// loaded. Nil means that none is.
	Taken  func(name string) bool
	Logger *slog.Logger // nil: slog.Default()
}

// Service manages files, jobs and adapters. It is safe for concurrent use.
type Service struct {
	options  Options
	store    *store.Store
	files    *store.Table[File]
	jobs     *store.Table[Job]
	models   *store.Table[Model]
	events   *store.Log[Event]
	space    *store.Space // of files
	registry *lora.Registry

	mu     sync.Mutex // held for changes of jobs and models; never while calling the registry or a trainer
	moved  *sync.Cond // signals that a job's status has changed or the service is stopping
	runs   map[string]*underway
	ending bool

	workers sync.WaitGroup
	all     context.Context // parent of all work
	stop    context.CancelCauseFunc
}

// Folders of a service.
const (
	filesDir    = "files"    // one file per ID
	jobsDir     = "jobs"     // one folder per unfinished job, by ID
	adaptersDir = "adapters" // one folder per adapter, named by job ID, and step for checkpoints
)

// Open opens the folder of a service and cleans up after a crash. Jobs wait until [Service.Start].
// It fails with ErrInUse if another process uses the folder, and with ErrModel if the folder
// belongs to another model.
func Open(o Options) (_ *Service, err error) {
	if o.MaxFile == 0 {
		o.MaxFile = 512 << 20
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = 16 * o.MaxFile
	}
	if o.SaveInterval == 0 {
		o.SaveInterval = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Taken == nil {
		o.Taken = func(string) bool { return false }
	}
	if o.MaxLength == 0 {
		o.MaxLength = o.Model.Config.MaxLength()
	}
	o.Data.VocabSize = o.Model.Config.VocabSize
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("tuning: %w", err)
	}
	for _, name := range []string{filesDir, jobsDir, adaptersDir} {
		if err := os.MkdirAll(filepath.Join(o.Dir, name), 0o777); err != nil {
			return nil, fmt.Errorf("tuning: %w", err)
		}
	}
	s := &Service{
		options: o, runs: map[string]*underway{},
		files: store.NewTable[File]("files"), jobs: store.NewTable[Job]("jobs"), models: store.NewTable[Model]("models"), events: store.NewLog[Event]("events"),
	}
	s.moved = sync.NewCond(&s.mu)
	s.all, s.stop = context.WithCancelCause(context.Background())
	if s.store, err = store.Open(o.Dir, nil, s.files, s.jobs, s.models, s.events); err != nil {
		return nil, fmt.Errorf("tuning: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("tuning: %s: %w", o.Dir, err), s.store.Close())
		}
	}()
	if err = s.store.Update(func(t *store.Tx) error { return belongs(t, shape(o.Model.Config)) }); err != nil {
		return nil, err
	}
	if err = s.sweep(); err != nil {
		return nil, err
	}
	s.space = s.store.NewSpace(o.MaxFiles, o.KeepFree)
	for _, f := range s.files.All() {
		s.space.Add(f.ID, f.Bytes, 0)
	}
	for _, j := range s.jobs.All() {
		if !j.Status.Ended() {
			s.countHeld(&j)
		}
	}
	return s, nil
}

// belongs fails with ErrModel if the store belongs to a model with another description.
func belongs(t *store.Tx, model string) error {
	const key = "model"
	var was string
	if found, err := t.Meta(key, &was); err != nil || found && was == model {
		return err
	} else if found {
		return fmt.Errorf("%w: it is for %s, and this one is %s", ErrModel, was, model)
	}
	return t.SetMeta(key, model)
}

// shape describes the dimensions that an adapter must match.
func shape(c *model.Config) string {
	return fmt.Sprintf("%s with %d layers of %d, and %d tokens", c.ModelType, c.Layers, c.HiddenSize, c.VocabSize)
}

// sweep removes incomplete and deleted files, which have no record.
func (s *Service) sweep() error {
	used := map[string]bool{}
	for _, m := range s.models.All() {
		used[m.Dir] = true
	}
	return errors.Join(
		s.store.Sweep(filesDir, func(id string) bool { _, ok := s.files.Get(id); return ok }),
		s.store.Sweep(jobsDir, func(id string) bool { j, ok := s.jobs.Get(id); return ok && !j.Status.Ended() }),
		s.store.Sweep(adaptersDir, func(dir string) bool { return used[dir] }),
	)
}

// MaxFile returns the maximum size of a file in bytes.
func (s *Service) MaxFile() int64 { return s.options.MaxFile }

// Start starts checking and training jobs in order, up to jobs at the same time. Their adapters are
// loaded into the registry.
func (s *Service) Start(r *lora.Registry, t Trainer, jobs int) {
	s.registry = r
	s.workers.Go(s.check)
	for range jobs {
		s.workers.Go(func() { s.train(t) })
	}
}

// Stop makes running jobs save a checkpoint and waits for them. They resume from it when the folder
// is opened again. No other job starts.
func (s *Service) Stop() {
	s.mu.Lock()
	s.ending = true
	s.moved.Broadcast()
	s.mu.Unlock()
	s.stop(errStopped)
	s.workers.Wait()
}

// Close closes the service. Later calls fail with ErrClosed.
func (s *Service) Close() error {
	s.Stop()
	return s.store.Close()
}

// newID returns a new random ID.
func newID(prefix string) string { return prefix + rand.Text()[:24] }

func (s *Service) path(parts ...string) string { return s.store.Path(parts...) }
