package train_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// newBase opens a model on a device.
func newBase(t testing.TB, dir string, o backend.Options) (*train.Base, *host.Host) {
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	dev, err := backend.Open(backend.CPU, o)
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	r := host.Open(dev, m)
	t.Cleanup(r.Close)
	return train.NewBase(r, dir), r
}

// ofBase is the configuration of a run on a base: the keys that the base decides say
// otherwise.
func (w *workshop) ofBase(dir, job string, sets ...string) *config.Config {
	own := slices.DeleteFunc(slices.Clone(w.base), func(set string) bool {
		key, _, _ := strings.Cut(set, "=")
		return key == "batch_invariant" || strings.Contains(", "+job, ", "+key+":") || key == "steps" && strings.Contains(job, ", epochs:") || key == "data.train" && strings.Contains(job, "data:")
	})
	c, err := config.Parse("base.yaml", []byte("{"+job+"}"), slices.Concat(own, []string{"output_dir=" + dir, "quantize=nf4", "precision=bf16", "backend=cuda", "threads=7", "pack=always"}, sets)...)
	require.NoError(w.t, err)
	return c
}

// TestBase: runs on a base, one after the other and at the same time, give the bits of
// runs alone, and leave nothing behind.
func TestBase(t *testing.T) {
	w := newWorkshop(t, tinyModel, "threads=2")
	b, r := newBase(t, tinyModel, backend.Options{Threads: 2, BatchInvariant: true})
	jobs := append(w.mixedJobs(), "adapter: {r: 4, target_modules: all-linear, use_dora: true}, eval_steps: 2, data: {train: "+w.data(1)+", eval: "+w.data(0)+"}")
	train1 := func(i int) string {
		run, err := b.New(t.Context(), w.ofBase(t.TempDir(), jobs[i]), train.Observer{})
		require.NoError(t, err)
		defer run.Close()
		s, err := run.Train(t.Context())
		require.NoError(t, err)
		return adapterSum(t, s.Adapter)
	}
	var alone []string
	for i, job := range jobs {
		alone = append(alone, w.alone(job))
		require.Equal(t, alone[i], train1(i), job)
	}
	held := r.Bytes()
	together := make([]string, len(jobs))
	var all sync.WaitGroup
	for i := range jobs {
		all.Go(func() { together[i] = train1(i) })
	}
	all.Wait()
	require.Equal(t, alone, together)
	require.Equal(t, held, r.Bytes())
}

// TestBaseGivesBack: what a run has on the device goes with it, also where it fails to
// begin.
func TestBaseGivesBack(t *testing.T) {
	w := newWorkshop(t, tinyModel)
	m, err := model.Open(tinyModel)
	require.NoError(t, err)
	defer m.Close()
	dev := &null.Device{}
	r := host.Open(dev, m)
	defer r.Close()
	b := train.NewBase(r, tinyModel)
	preferences := filepath.Join(t.TempDir(), "preferences.jsonl")
	require.NoError(t, os.WriteFile(preferences, []byte(`{"prompt": "a", "chosen": "b", "rejected": "c"}`), 0o666))
	jobs := append(w.mixedJobs(), "adapter: {r: 2, use_dora: true}, data: {train: "+w.data(1)+", eval: "+w.data(0)+"}", "task: preference, data: {train: "+preferences+", eval: "+preferences+"}")
	begin := func(job string) error {
		run, err := b.New(t.Context(), w.ofBase(t.TempDir(), job), train.Observer{})
		if err == nil {
			run.Close()
		}
		return err
	}
	for _, job := range jobs { // weights stay, and what makes things of weights of a shape
		require.NoError(t, begin(job))
	}
	held, peak := dev.Held()
	for _, job := range jobs {
		require.NoError(t, begin(job))
		now, _ := dev.Held()
		require.Equal(t, held, now, job)
	}
	failed, limits := 0, int64(3)
	if os.Getenv("LORAFUSE_LONG") != "" {
		limits = 20
	}
	for memory := held + 1<<12; memory < peak; memory += (peak - held) / limits {
		dev.Memory = memory
		for _, job := range jobs {
			if begin(job) != nil {
				failed++
			}
			now, _ := dev.Held()
			require.Equal(t, held, now, job)
		}
	}
	require.Greater(t, failed, len(jobs))
}

// TestBaseResumes: a run on a base that was stopped goes on, from checkpoints of a run on
// a base or alone, while another is open, and tells of each checkpoint.
func TestBaseResumes(t *testing.T) {
	w := newWorkshop(t, tinyModel, "threads=1", "save_steps=1", "save_limit=0")
	b, _ := newBase(t, tinyModel, backend.Options{Threads: 1, BatchInvariant: true})
	job := "adapter: {r: 4, target_modules: all-linear, lora_dropout: 0.1}, steps: 5"
	alone := w.alone(job)
	other, err := b.New(t.Context(), w.ofBase(t.TempDir(), job), train.Observer{})
	require.NoError(t, err)
	defer other.Close()

	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	var saved []int
	run, err := b.New(ctx, w.ofBase(dir, job), train.Observer{Saved: func(step int, path string) {
		require.FileExists(t, filepath.Join(train.CheckpointAdapter(path), "adapter_model.safetensors"))
		if saved = append(saved, step); step == 2 {
			stop()
		}
	}})
	require.NoError(t, err)
	_, err = run.Train(ctx)
	require.ErrorIs(t, err, train.ErrInterrupted)
	run.Close()
	require.Equal(t, []int{1, 2}, saved)

	c := w.ofBase(dir, job)
	c.Resume = "latest"
	run, err = b.New(t.Context(), c, train.Observer{Saved: func(step int, _ string) { saved = append(saved, step) }})
	require.NoError(t, err)
	defer run.Close()
	s, err := run.Train(t.Context())
	require.NoError(t, err)
	require.Equal(t, alone, adapterSum(t, s.Adapter))
	require.Equal(t, []int{1, 2, 3, 4, 5}, saved)
}

// TestBaseStops: a run that is stopped anywhere in its step is no matter to another, and
// goes on from where it was.
func TestBaseStops(t *testing.T) {
	w := newWorkshop(t, tinyModel, "threads=2", "save_steps=1")
	b, _ := newBase(t, tinyModel, backend.Options{Threads: 2, BatchInvariant: true})
	job := "adapter: {r: 4, target_modules: all-linear}, steps: 12, gradient_accumulation_steps: 2"
	alone := w.alone(job)
	train1 := func(ctx context.Context, c *config.Config, step func(train.Report)) (string, error) {
		run, err := b.New(t.Context(), c, train.Observer{Step: step})
		if err != nil {
			return "", err
		}
		defer run.Close()
		s, err := run.Train(ctx)
		if err != nil {
			return "", err
		}
		return adapterSum(t, s.Adapter), nil
	}
	stopped, dir := 0, t.TempDir()
	var mu sync.Mutex
	stop := func() {}
	var other string
	var wait sync.WaitGroup
	wait.Go(func() {
		other, _ = train1(t.Context(), w.ofBase(t.TempDir(), job), func(train.Report) {
			mu.Lock()
			defer mu.Unlock()
			stop()
		})
	})
	for sum := ""; sum == ""; {
		ctx, cancel := context.WithCancel(t.Context())
		mu.Lock()
		stop = cancel
		mu.Unlock()
		c := w.ofBase(dir, job)
		c.Resume = "latest"
		var err error
		if sum, err = train1(ctx, resumable(t, c), nil); err != nil {
			require.ErrorIs(t, err, train.ErrInterrupted)
			stopped++
		} else {
			require.Equal(t, alone, sum)
		}
		cancel()
	}
	wait.Wait()
	require.Equal(t, alone, other)
	require.Positive(t, stopped)
}

// TestCheckpointAdapter: the adapter of a checkpoint can be used whatever it began by.
func TestCheckpointAdapter(t *testing.T) {
	w := newWorkshop(t, tinyModel, "threads=1", "save_steps=2")
	m, err := model.Open(tinyModel)
	require.NoError(t, err)
	defer m.Close()
	for _, begin := range []string{"true", "pissa", "pissa_niter_4", "olora"} {
		dir, job := t.TempDir(), "adapter: {r: 4, target_modules: all-linear, init_lora_weights: "+begin+"}"
		b, _ := newBase(t, tinyModel, backend.Options{Threads: 1})
		checkpoint := ""
		run, err := b.New(t.Context(), w.ofBase(dir, job), train.Observer{Saved: func(_ int, path string) { checkpoint = path }})
		require.NoError(t, err)
		s, err := run.Train(t.Context())
		run.Close()
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "checkpoint-4"), checkpoint)
		a, err := lora.Load(train.CheckpointAdapter(checkpoint))
		require.NoError(t, err)
		p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		require.NoError(t, a.Check(p, lora.CheckOptions{}).Err(), begin)
		a.Close()
		require.Equal(t, adapterSum(t, s.Adapter), adapterSum(t, train.CheckpointAdapter(checkpoint)), begin)
	}
}

// TestBaseRefuses: what a base cannot train, with an error before anything is written.
func TestBaseRefuses(t *testing.T) {
	w := newWorkshop(t, tinyModel, "threads=1")
	b, _ := newBase(t, tinyModel, backend.Options{Threads: 1})
	dir := filepath.Join(t.TempDir(), "none")
	_, err := b.New(t.Context(), w.ofBase(dir, "task: embedding, adapter: {r: 4}"), train.Observer{})
	require.ErrorIs(t, err, train.ErrTask)
	require.NoDirExists(t, dir)

	c := config.Default()
	c.Data.Train, c.OutputDir, c.Steps = config.Strings{w.data(0)}, dir, 1
	run, err := b.New(t.Context(), c, train.Observer{})
	require.NoError(t, err, "no model is named")
	run.Close()
	raw, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, raw)
}
