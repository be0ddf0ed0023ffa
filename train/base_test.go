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
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// newBase opens a model on a device.
func newBase(t testing.TB, dir string, o backend.Options) (*train.Base, *engine.Runtime) {
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	dev, err := backend.Open(backend.CPU, o)
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	r := engine.New(dev, m)
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
