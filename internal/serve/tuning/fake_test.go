package tuning_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

const (
	llama = "../../../testdata/lm/llama/model"
	made  = "../../../testdata/lm/llama/adapters/lora" // what all jobs make
)

// trainer makes runs that learn nothing, but have steps, checkpoints and an end as others
// do.
type trainer struct {
	gate  chan struct{} // nil, or each step waits for it
	fail  func(c *config.Config, step int) error
	saved func(step int) // when a checkpoint is whole, before that is said; may be nil
	jobs  int            // at the same time; 0 is 1

	mu      sync.Mutex
	configs []*config.Config // of the runs that were made
	running map[string]bool  // by their folders
	most    int              // at the same time
}

func (f *trainer) New(_ context.Context, c *config.Config, o train.Observer) (tuning.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.configs = append(f.configs, c)
	if f.fail != nil {
		if err := f.fail(c, 0); err != nil {
			return nil, err
		}
	}
	if f.running[c.OutputDir] {
		return nil, train.ErrRunning
	}
	if f.running == nil {
		f.running = map[string]bool{}
	}
	f.running[c.OutputDir] = true
	f.most = max(f.most, len(f.running))
	return &run{f, c, o}, os.MkdirAll(c.OutputDir, 0o777)
}

type run struct {
	trainer *trainer
	config  *config.Config
	o       train.Observer
}

func (r *run) Close() {
	r.trainer.mu.Lock()
	defer r.trainer.mu.Unlock()
	delete(r.trainer.running, r.config.OutputDir)
}

func (r *run) progress() string { return filepath.Join(r.config.OutputDir, "progress") }

func (r *run) save(step int) error {
	dir := filepath.Join(r.config.OutputDir, fmt.Sprintf("checkpoint-%d", step))
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
		return err
	}
	if err := os.WriteFile(r.progress(), []byte(strconv.Itoa(step)), 0o666); err != nil {
		return err
	}
	if r.trainer.saved != nil {
		r.trainer.saved(step)
	}
	r.o.Saved(step, dir)
	return nil
}

func (r *run) Train(ctx context.Context) (*train.Summary, error) {
	raw, err := os.ReadFile(r.config.Data.Train[0])
	if err != nil {
		return nil, err
	}
	begun := 0
	if text, err := os.ReadFile(r.progress()); err == nil {
		begun, _ = strconv.Atoi(string(text))
	}
	each := (strings.Count(string(raw), "\n") + r.config.BatchSize - 1) / r.config.BatchSize
	steps := each * int(r.config.Epochs)
	var eval *float64
	for step := begun + 1; step <= steps; step++ {
		select {
		case <-ctx.Done():
			return nil, errors.Join(train.ErrInterrupted, r.save(step-1))
		default:
		}
		if r.trainer.gate != nil {
			select {
			case <-r.trainer.gate:
			case <-ctx.Done():
				return nil, errors.Join(train.ErrInterrupted, r.save(step-1))
			}
		}
		if r.trainer.fail != nil {
			if err := r.trainer.fail(r.config, step); err != nil {
				return nil, err
			}
		}
		eval = nil
		if step%each == 0 && len(r.config.Data.Eval) > 0 {
			eval = new(2 / float64(step))
		}
		r.o.Step(train.Report{Step: step, Steps: steps, Loss: 1 / float64(step), LearningRate: 0.5, GradNorm: 2, TokensPerSecond: 100, Eval: eval})
		if step < steps && r.o.Save(step) {
			if err := r.save(step); err != nil {
				return nil, err
			}
		}
	}
	log, err := events.OpenMetrics(filepath.Join(r.config.OutputDir, "metrics.jsonl"), events.Fresh)
	if err != nil {
		return nil, err
	}
	for step := 1; step <= steps; step++ {
		if err := log.Write(events.Record{Step: int64(step), Scalars: []events.Scalar{{Name: events.Loss, Value: 1 / float64(step)}, {Name: "learning_rate", Value: 0.5}}}); err != nil {
			return nil, err
		}
	}
	if err := log.Close(); err != nil {
		return nil, err
	}
	adapter := filepath.Join(r.config.OutputDir, train.AdapterDir)
	return &train.Summary{Steps: steps, Tokens: int64(steps * 10), Adapter: adapter}, errors.Join(os.RemoveAll(adapter), os.CopyFS(adapter, os.DirFS(made)))
}

// house is a service with what it needs.
type house struct {
	*tuning.Service
	t        testing.TB
	dir      string
	registry *lora.Registry
	trainer  *trainer
}

// options are those of a service in dir.
func options(t testing.TB, dir string, m *model.Model) tuning.Options {
	words, err := tokenizer.Load(llama)
	require.NoError(t, err)
	chatml, err := os.ReadFile("../../../testdata/tokenizers/chat/chatml.jinja")
	require.NoError(t, err)
	template, err := chat.New(string(chatml), words.SpecialTokens())
	require.NoError(t, err)
	return tuning.Options{
		Dir: dir, Name: "base", Model: m, MaxLength: 64, MaxFile: 4096,
		Data:   data.Options{Tokenizer: words, Template: data.Chat(template)},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// open opens a service until the test ends, or until it is closed.
func open(t testing.TB, dir string, x *trainer, edits ...func(*tuning.Options)) *house {
	t.Helper()
	h := &house{t: t, dir: dir, trainer: x}
	m, err := model.Open(llama)
	require.NoError(t, err)
	o := options(t, dir, m)
	for _, edit := range edits {
		edit(&o)
	}
	h.Service, err = tuning.Open(o)
	require.NoError(t, err)
	h.registry, err = lora.NewRegistry(m, m.Config.ModelType, m.Modules(), lora.RegistryOptions{Find: h.Find})
	require.NoError(t, err)
	h.Start(h.registry, x, max(x.jobs, 1))
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		h.registry.Close()
		require.NoError(t, m.Close())
	})
	return h
}

// upload sends a file for fine-tuning.
func (h *house) upload(text string) string {
	h.t.Helper()
	u, err := h.Upload()
	require.NoError(h.t, err)
	_, err = u.Write([]byte(text))
	require.NoError(h.t, err)
	f, err := u.Commit(tuning.File{Name: "rows.jsonl", Purpose: tuning.FineTune})
	require.NoError(h.t, err)
	return f.ID
}

const (
	four = `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}` + "\n" +
		`{"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}` + "\n" +
		`{"messages": [{"role": "user", "content": "e"}, {"role": "assistant", "content": "f"}]}` + "\n" +
		`{"messages": [{"role": "user", "content": "g"}, {"role": "assistant", "content": "h"}]}` + "\n"
)

// create makes a job of the file four.
func (h *house) create(edits ...func(*tuning.Request)) tuning.Job {
	h.t.Helper()
	r := tuning.Request{Model: "base", TrainingFile: h.upload(four)}
	for _, edit := range edits {
		edit(&r)
	}
	j, err := h.Create(h.t.Context(), r, keys.Client{Name: "me"})
	require.NoError(h.t, err)
	return j
}

// await waits until a job has a status.
func (h *house) await(id string, want ...tuning.Status) tuning.Job {
	h.t.Helper()
	for {
		j, err := h.Job(keys.Client{}, id)
		require.NoError(h.t, err)
		for _, s := range want {
			if j.Status == s {
				return j
			}
		}
		require.False(h.t, j.Status.Ended(), "job is %s: %+v", j.Status, j.Error)
		time.Sleep(time.Millisecond)
	}
}

// messages are those of the events of a job, the first first.
func (h *house) messages(id string) (all []string) {
	h.t.Helper()
	events, more, err := h.Events(keys.Client{}, id, 0, 1000)
	require.NoError(h.t, err)
	require.False(h.t, more)
	for _, e := range events {
		all = append([]string{e.Message}, all...)
	}
	return all
}
