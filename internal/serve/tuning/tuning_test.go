package tuning_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		children[os.Getenv(roleEnv)](dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// A job goes from its files to an adapter that can be asked for.
func TestJob(t *testing.T) {
	h := open(t, t.TempDir(), &trainer{})
	j := h.create(func(r *tuning.Request) {
		r.Suffix, r.ValidationFile = "mine", h.upload(four)
		r.Hyperparameters.Epochs = new(5)
		r.Metadata = map[string]string{"a": "b"}
		r.Adapter = json.RawMessage(`{"r": 4, "use_rslora": true}`)
	})
	assert.Equal(t, tuning.Validating, j.Status)
	assert.Regexp(t, "^ftjob-[0-9A-Za-z]{24}$", j.ID)
	j = h.await(j.ID, tuning.Succeeded)
	assert.Equal(t, "mine", j.Tuned)
	assert.Equal(t, int64(20*10), j.TrainedTokens)
	assert.Equal(t, []int{5, 1}, []int{*j.Settled.Epochs, *j.Settled.BatchSize})
	assert.Equal(t, 1.0, *j.Settled.RateMultiplier)
	assert.Nil(t, j.Settled.Beta)
	assert.NotZero(t, j.Finished)

	c := h.trainer.configs[0]
	assert.Equal(t, [2]any{4, 8.0}, [2]any{c.Adapter.R, c.Adapter.LoraAlpha})
	assert.True(t, c.Adapter.UseRSLora)
	assert.Equal(t, 2e-4, c.LearningRate)
	assert.Equal(t, [2]any{64, *j.Request.Seed}, [2]any{c.Data.MaxLength, c.Seed})

	lease, err := h.registry.Acquire(t.Context(), "mine")
	require.NoError(t, err)
	a, err := lora.Load(made)
	require.NoError(t, err)
	defer a.Close()
	want, err := a.Digest()
	require.NoError(t, err)
	assert.Equal(t, want, lease.Version().Digest())
	lease.Release()

	assert.Equal(t, []string{
		"Created fine-tuning job: " + j.ID,
		"Validating training file: " + j.Request.TrainingFile + " and validation file: " + j.Request.ValidationFile,
		"Files validated, moving job to queued state", "Fine-tuning job started",
		"Step 1/20: training loss=1.0000", "Step 2/20: training loss=0.5000", "Step 3/20: training loss=0.3333",
		"Step 4/20: training loss=0.2500, validation loss=0.5000", "Checkpoint created at step 4",
	}, h.messages(j.ID)[:9])
	last := h.messages(j.ID)
	assert.Equal(t, []string{"New fine-tuned model created: mine", "The job has successfully completed"}, last[len(last)-2:])

	var names []string
	for _, x := range j.Checkpoints {
		names = append(names, x.Model)
		lease, err := h.registry.Acquire(t.Context(), x.Model)
		require.NoError(t, err)
		lease.Release()
	}
	assert.Equal(t, []string{"mine-step-12", "mine-step-16", "mine"}, names)
	assert.Equal(t, 0.125, *j.Checkpoints[1].Metrics.ValidLoss)
	_, err = h.registry.Acquire(t.Context(), "mine-step-8")
	require.ErrorIs(t, err, lora.ErrNotFound)
	require.NoDirExists(t, filepath.Join(h.dir, "adapters", j.ID+"-8"))

	f, r, err := h.Content(keys.Client{}, j.ResultFiles[0])
	require.NoError(t, err)
	defer r.Close()
	raw, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, int64(len(raw)), f.Bytes)
	assert.Equal(t, tuning.Results, f.Purpose)
	lines := strings.Split(string(raw), "\n")
	assert.Equal(t, []string{"step,train_loss,train_accuracy,valid_loss,valid_accuracy,learning_rate,grad_norm", "1,1,,,,0.5,", "2,0.5,,,,0.5,"}, lines[:3])
	assert.Len(t, lines, 22)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(h.dir, "jobs", j.ID)); return os.IsNotExist(err) }, time.Minute, time.Millisecond)
}

// What was there is there after a restart, adapters are found by their names, and what was
// made by a crash is not.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, &trainer{})
	kept := h.upload(four)
	j := h.await(h.create(func(r *tuning.Request) { r.Suffix = "mine" }).ID, tuning.Succeeded)
	require.NoError(t, h.Close())
	_, err := h.Upload()
	require.NoError(t, err, "the disk takes it")
	_, err = h.Create(t.Context(), tuning.Request{Model: "base", TrainingFile: kept}, keys.Client{})
	require.ErrorIs(t, err, tuning.ErrClosed)

	for _, stray := range []string{"files/file-x", "jobs/ftjob-x/a", "adapters/ftjob-x/a", "files/.tmp-0123456789ab-file-y"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, stray)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, stray), nil, 0o666))
	}
	h = open(t, dir, &trainer{})
	for folder, want := range map[string]int{"files": 3, "jobs": 0, "adapters": 3} {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		require.NoError(t, err)
		assert.Len(t, entries, want, folder)
	}
	again, err := h.Job(keys.Client{}, j.ID)
	require.NoError(t, err)
	assert.Equal(t, j, again)
	assert.Len(t, h.Files(keys.Client{}), 3)
	assert.Empty(t, h.registry.List())
	lease, err := h.registry.Acquire(t.Context(), "mine")
	require.NoError(t, err)
	lease.Release()
	assert.Len(t, h.registry.List(), 1)

	m, err := model.Open(llama)
	require.NoError(t, err)
	defer m.Close()
	_, err = tuning.Open(options(t, dir, m))
	require.ErrorIs(t, err, tuning.ErrInUse)
	require.NoError(t, h.Close())
	m.Config.Layers++
	_, err = tuning.Open(options(t, dir, m))
	require.ErrorIs(t, err, tuning.ErrModel)
	require.ErrorContains(t, err, "it is for llama with 2 layers of 64, and 512 tokens, and this one is llama with 3 layers")
}

// Jobs are trained in their order; one waits where it is paused and goes on from its last
// checkpoint; one that is cancelled is trained no more.
func TestQueue(t *testing.T) {
	x := &trainer{gate: make(chan struct{})}
	h := open(t, t.TempDir(), x)
	first, second, third := h.create(), h.create(), h.create()
	h.await(third.ID, tuning.Queued)
	h.await(first.ID, tuning.Running)
	for range 5 {
		x.gate <- struct{}{}
	}
	j, err := h.Pause(keys.Client{}, first.ID)
	require.NoError(t, err)
	assert.Equal(t, tuning.Paused, j.Status)
	h.await(second.ID, tuning.Running)
	j, err = h.Cancel(keys.Client{}, second.ID)
	require.NoError(t, err)
	assert.Equal(t, tuning.Cancelled, j.Status)
	_, err = h.Cancel(keys.Client{}, second.ID)
	require.ErrorIs(t, err, tuning.ErrState)
	_, err = h.Resume(keys.Client{}, second.ID)
	require.ErrorIs(t, err, tuning.ErrState)
	h.await(third.ID, tuning.Running)
	_, err = h.Resume(keys.Client{}, first.ID)
	require.NoError(t, err)
	h.await(first.ID, tuning.Queued)
	close(x.gate)
	done := h.await(first.ID, tuning.Succeeded)
	h.await(third.ID, tuning.Succeeded)
	assert.Equal(t, 1, x.most)
	assert.Equal(t, 1, strings.Count(strings.Join(h.messages(first.ID), "\n"), "Step 6/12:"))
	assert.Equal(t, 12, strings.Count(strings.Join(h.messages(first.ID), "\n"), "Step "))
	assert.Equal(t, "ft-"+first.ID[6:14], done.Tuned)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(h.dir, "jobs", second.ID)); return os.IsNotExist(err) }, time.Minute, time.Millisecond)
}

// A service that ends has jobs save what they have done, and they go on from there; a
// folder that was copied at any time, as a crash leaves it, too.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	x := &trainer{gate: make(chan struct{})}
	h := open(t, dir, x)
	j := h.create()
	for range 6 {
		x.gate <- struct{}{}
	}
	require.NoError(t, h.DeleteFile(keys.Client{}, j.Request.TrainingFile), "the job has its own")
	require.NoError(t, h.Close())
	h = open(t, dir, &trainer{})
	h.await(j.ID, tuning.Succeeded)
	text := strings.Join(h.messages(j.ID), "\n")
	assert.Contains(t, text, "goes on from its last checkpoint\nStep 7/12")
	for step, line := range h.messages(j.ID) {
		if step > 3 && step < 8 {
			assert.Contains(t, line, "Step")
		}
	}
	assert.Equal(t, 12, strings.Count(text, "Step "))
}

// A checkpoint is saved when the last one is old, also within an epoch, where it is none
// to be asked for.
func TestSaveInterval(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		want     []string
	}{{time.Nanosecond, []string{"checkpoint-1", "checkpoint-2", "checkpoint-3"}}, {time.Hour, nil}} {
		x := &trainer{gate: make(chan struct{})}
		h := open(t, t.TempDir(), x, func(o *tuning.Options) { o.SaveInterval = c.interval })
		j := h.create()
		for range 4 { // when the fourth begins, the third is saved
			x.gate <- struct{}{}
		}
		found, err := filepath.Glob(filepath.Join(h.dir, "jobs", j.ID, "output", "checkpoint-[123]"))
		require.NoError(t, err)
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		assert.Equal(t, c.want, found)
		j, err = h.Job(keys.Client{}, j.ID)
		require.NoError(t, err)
		for _, p := range j.Checkpoints {
			assert.Equal(t, 4, p.Metrics.Step)
		}
	}
}

// A job that fails says why, and tells nothing of what is no fault of its own; others go
// on. A name that was given away meanwhile is not taken from whoever has it.
func TestFails(t *testing.T) {
	var lost atomic.Bool
	x := &trainer{gate: make(chan struct{}), fail: func(c *config.Config, step int) error {
		switch {
		case c.Seed == 1 && step == 0:
			return fmt.Errorf("train: %w: 1 GiB", backend.ErrOutOfMemory)
		case c.Seed == 2 && step == 3:
			return fmt.Errorf("train: step 3: %w", train.ErrNotFinite)
		case c.Seed == 3 && step == 1:
			panic("/secret")
		case c.Seed == 4 && step == 1:
			return fmt.Errorf("train: %w", syscall.ENOSPC)
		case c.Seed == 5 && step == 5 && !lost.Swap(true):
			return fmt.Errorf("train: %w", backend.ErrLost)
		}
		return nil
	}}
	close(x.gate)
	h := open(t, t.TempDir(), x)
	for seed, want := range []string{1: "out_of_memory", 2: "not_finite", 3: "server_error", 4: "no_space"} {
		if want == "" {
			continue
		}
		j := h.await(h.create(func(r *tuning.Request) { r.Seed = new(uint64(seed)) }).ID, tuning.Failed)
		assert.Equal(t, want, j.Error.Code)
		assert.NotContains(t, j.Error.Message, "secret")
		events, _, err := h.Events(keys.Client{}, j.ID, 0, 1)
		require.NoError(t, err)
		assert.Equal(t, []any{tuning.Fault, j.Error.Message}, []any{events[0].Level, events[0].Message})
	}
	paused := h.await(h.create(func(r *tuning.Request) { r.Seed = new(uint64(5)) }).ID, tuning.Paused)
	_, err := h.Resume(keys.Client{}, paused.ID)
	require.NoError(t, err)
	h.await(paused.ID, tuning.Succeeded)
	assert.Contains(t, strings.Join(h.messages(paused.ID), "\n"), "The device is lost")

	x.gate = make(chan struct{})
	j := h.create(func(r *tuning.Request) { r.Suffix = "mine" })
	_, err = h.registry.Load(t.Context(), "mine", made)
	require.NoError(t, err)
	close(x.gate)
	assert.Equal(t, "mine-"+j.ID[6:14], h.await(j.ID, tuning.Succeeded).Tuned)
	assert.Len(t, h.Models(keys.Client{}), 2)

	many := h.await(h.create(func(r *tuning.Request) { r.Hyperparameters.Epochs = new(25) }).ID, tuning.Succeeded)
	assert.Equal(t, 9, strings.Count(strings.Join(h.messages(many.ID), "\n"), "Checkpoint created"), "3, 6 … 24, and 23")
	assert.Equal(t, []int{92, 96, 100}, []int{many.Checkpoints[0].Metrics.Step, many.Checkpoints[1].Metrics.Step, many.Checkpoints[2].Metrics.Step})
}

// Rows that are too long are cut, and an event says so; a validation file that is no file
// of rows is the one that is blamed.
func TestFiles(t *testing.T) {
	h := open(t, t.TempDir(), &trainer{})
	long := `{"prompt": "a", "completion": "` + strings.Repeat("b c ", 100) + `"}` + "\n"
	j := h.await(h.create(func(r *tuning.Request) { r.TrainingFile = h.upload(long) }).ID, tuning.Succeeded)
	assert.Contains(t, strings.Join(h.messages(j.ID), "\n"), "1 of 1 rows are longer than 64 tokens, and cut there")
	j = h.await(h.create(func(r *tuning.Request) { r.ValidationFile = h.upload(four + "[") }).ID, tuning.Failed)
	assert.Equal(t, []any{"invalid_validation_file", "validation_file"}, []any{j.Error.Code, j.Error.Param})
	assert.Contains(t, j.Error.Message, "rows.jsonl, line 5: ")

	u, err := h.Upload()
	require.NoError(t, err)
	_, err = io.WriteString(u, four)
	require.NoError(t, err)
	f, err := u.Commit(tuning.File{Name: "a", Purpose: tuning.FineTune, Expires: 1})
	require.NoError(t, err)
	assert.Equal(t, f.Created+1, f.Expires)
	require.Eventually(t, func() bool { _, err := h.File(keys.Client{}, f.ID); return errors.Is(err, tuning.ErrNotFound) }, time.Minute, 10*time.Millisecond)
	require.NoFileExists(t, filepath.Join(h.dir, "files", f.ID))
}

// An adapter goes on from another, also when that has gone.
func TestContinues(t *testing.T) {
	x := &trainer{}
	h := open(t, t.TempDir(), x)
	j := h.await(h.create(func(r *tuning.Request) { r.Suffix = "one" }).ID, tuning.Succeeded)
	x.gate = make(chan struct{})
	next := h.create(func(r *tuning.Request) { r.Model, r.Suffix = "one", "one" })
	require.NoError(t, h.DeleteModel(keys.Client{}, "one"))
	require.ErrorIs(t, h.DeleteModel(keys.Client{}, "one"), tuning.ErrNotFound)
	_, err := h.registry.Acquire(t.Context(), "one")
	require.ErrorIs(t, err, lora.ErrNotFound)
	require.NoDirExists(t, filepath.Join(h.dir, "adapters", j.ID))
	close(x.gate)
	done := h.await(next.ID, tuning.Succeeded)
	assert.Equal(t, "one-"+next.ID[6:14], done.Tuned, "the name was not free")
	c := x.configs[1]
	assert.Equal(t, "init", filepath.Base(c.InitAdapter))
	_, err = h.Create(t.Context(), tuning.Request{Model: done.Tuned, TrainingFile: h.upload(four), Adapter: json.RawMessage(`{"r": 3}`)}, keys.Client{})
	require.ErrorContains(t, err, "lora: an adapter that is gone on from brings its own settings")
	_, err = h.Create(t.Context(), tuning.Request{Model: "one", TrainingFile: h.upload(four)}, keys.Client{})
	require.ErrorIs(t, err, lora.ErrNotFound)
}

// Whatever clients do at the same time, each job comes to its end once, and the folder
// holds no more than the records say.
func TestManyClients(t *testing.T) {
	dir := t.TempDir()
	x := &trainer{jobs: 3}
	h := open(t, dir, x)
	var all sync.WaitGroup
	ids := make(chan string, 1000)
	for client := range 6 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(client)))
			for range 6 {
				j := h.create(func(r *tuning.Request) { r.Suffix = "s"; r.Hyperparameters.Epochs = new(1 + random.IntN(3)) })
				ids <- j.ID
				for range random.IntN(6) {
					var err error
					switch random.IntN(4) {
					case 0:
						_, err = h.Pause(keys.Client{}, j.ID)
					case 1:
						_, err = h.Resume(keys.Client{}, j.ID)
					case 2:
						_, _, err = h.Events(keys.Client{}, j.ID, 0, 3)
					case 3:
						if random.IntN(3) == 0 {
							_, err = h.Cancel(keys.Client{}, j.ID)
						}
					}
					if err != nil {
						assert.ErrorIs(t, err, tuning.ErrState)
					}
				}
				if _, err := h.Resume(keys.Client{}, j.ID); err != nil {
					assert.ErrorIs(t, err, tuning.ErrState)
				}
				h.Jobs(keys.Client{})
				if lease, err := h.registry.Acquire(t.Context(), "s"); err == nil {
					lease.Release()
					if err := h.DeleteModel(keys.Client{}, "s"); err != nil {
						assert.ErrorIs(t, err, tuning.ErrNotFound)
					}
				}
				assert.NoError(t, h.DeleteFile(keys.Client{}, j.Request.TrainingFile))
			}
		})
	}
	all.Wait()
	close(ids)
	names := map[string]bool{}
	for id := range ids {
		j := h.await(id, tuning.Succeeded, tuning.Cancelled)
		if m, ok := h.Model(j.Tuned); ok && m.Job == id { // what was deleted may have given its name to another
			require.False(t, names[j.Tuned], j.Tuned)
			names[j.Tuned] = true
		}
		text := strings.Join(h.messages(id), "\n")
		require.LessOrEqual(t, strings.Count(text, "has successfully completed")+strings.Count(text, "has been cancelled"), 1, text)
	}
	require.NoError(t, h.Close())
	h = open(t, dir, x)
	entries, err := os.ReadDir(filepath.Join(dir, "jobs"))
	require.NoError(t, err)
	require.Empty(t, entries)
	entries, err = os.ReadDir(filepath.Join(dir, "files"))
	require.NoError(t, err)
	require.Len(t, entries, len(h.Files(keys.Client{})))
}
