package train_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/train/config"
)

// workshop is a folder with data, for jobs and for runs alone.
type workshop struct {
	t    testing.TB
	dir  string
	base []string // settings of all runs
}

func newWorkshop(t testing.TB, model string, base ...string) *workshop {
	w := &workshop{t: t, dir: t.TempDir()}
	for i, n := range []int{5, 23, 40} {
		var rows strings.Builder
		for k := range n {
			fmt.Fprintf(&rows, "{\"prompt\": %q, \"completion\": %q}\n", fmt.Sprintf("set %d, after %d comes", i, k), strings.Repeat(fmt.Sprintf(" number %d", k+1), 1+(k*k+i)%4))
		}
		require.NoError(t, os.WriteFile(w.data(i), []byte(rows.String()), 0o666))
	}
	w.base = append([]string{"model=" + model, "output_dir=" + filepath.Join(w.dir, "jobs"), "log.plot=false", "log.tensorboard=false", "backend=cpu", "precision=f32", "batch_invariant=true",
		"learning_rate=0.01", "batch_size=2", "steps=4", "data.train=" + w.data(1)}, base...)
	return w
}

func (w *workshop) data(i int) string { return filepath.Join(w.dir, fmt.Sprintf("rows%d.jsonl", i)) }

// together is the configuration of jobs, each a mapping in YAML without its name.
func (w *workshop) together(jobs []string, sets ...string) *config.Config {
	var yaml strings.Builder
	yaml.WriteString("jobs:\n")
	for i, job := range jobs {
		fmt.Fprintf(&yaml, "  - {name: job%d, %s}\n", i, job)
	}
	c, err := config.Parse("jobs.yaml", []byte(yaml.String()), slices.Concat(w.base, sets)...)
	require.NoError(w.t, err)
	return c
}

// train trains jobs, and gives the SHA-256 of the adapters by the names of the jobs.
func (w *workshop) train(c *config.Config) (sums map[string]string, notes []string, err error) {
	j, err := train.NewJobs(context.Background(), c, func(name string) train.Observer {
		return train.Observer{Note: func(text string) { notes = append(notes, name+": "+text) }}
	})
	require.NoError(w.t, err)
	defer j.Close()
	all, err := j.Train(context.Background())
	sums = map[string]string{}
	for _, x := range all {
		if x.Err == nil {
			sums[x.Name] = adapterSum(w.t, x.Summary.Adapter)
		}
	}
	return sums, notes, err
}

func adapterSum(t testing.TB, dir string) string {
	raw, err := os.ReadFile(filepath.Join(dir, "adapter_model.safetensors"))
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// alone trains a job as a run of its own.
func (w *workshop) alone(job string, sets ...string) string {
	dir := filepath.Join(w.t.TempDir(), "alone")
	base := slices.DeleteFunc(slices.Clone(w.base), func(set string) bool {
		key, _, _ := strings.Cut(set, "=")
		return strings.Contains(", "+job, ", "+key+":") || key == "steps" && strings.Contains(job, ", epochs:") || key == "data.train" && strings.Contains(job, "data:")
	})
	c, err := config.Parse("alone.yaml", []byte("{"+job+"}"), slices.Concat(base, []string{"output_dir=" + dir}, sets)...)
	require.NoError(w.t, err)
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(w.t, err)
	defer r.Close()
	s, err := r.Train(context.Background())
	require.NoError(w.t, err)
	return adapterSum(w.t, s.Adapter)
}

// mixedJobs are jobs of several ranks, targets, seeds, lengths and data.
func (w *workshop) mixedJobs() []string {
	return []string{
		"adapter: {r: 4, target_modules: all-linear}, seed: 1",
		"adapter: {r: 1, target_modules: [q_proj]}, seed: 2, steps: 7, gradient_accumulation_steps: 3, data: {train: " + w.data(0) + "}",
		"adapter: {r: 16, lora_alpha: 32, target_modules: [v_proj, down_proj], use_rslora: true}, learning_rate: 1e-3, batch_size: 1, epochs: 0.2, schedule: cosine, weight_decay: 0.1",
		"adapter: {r: 5, target_modules: all-linear, lora_dropout: 0.3}, seed: 3, batch_size: 20, gradient_accumulation_steps: 2, data: {train: " + w.data(2) + "}",
		"adapter: {r: 4, target_modules: [v_proj, gate_proj], lora_dropout: 0.05}, seed: 4, batch_size: 1",
		"adapter: {r: 4, target_modules: [q_proj, up_proj], init_lora_weights: olora}, seed: 6, gradient_accumulation_steps: 2",
		"adapter: {r: 3, target_modules: [k_proj, o_proj, up_proj], rank_pattern: {o_proj: 7}}, batch_size: 5, steps: 2, activation_checkpointing: true, data: {train: " + w.data(2) + ", packing: true, max_length: 128}",
	}
}

// shortJobs are those of mixedJobs with accumulation, dropout, and packing with recomputed activations, and one with DoRA;
// with LORAFUSE_LONG all of mixedJobs.
func (w *workshop) shortJobs() []string {
	jobs := w.mixedJobs()
	if os.Getenv("LORAFUSE_LONG") == "" {
		jobs = []string{jobs[1], jobs[3], jobs[6]}
	}
	return append(jobs, "adapter: {use_dora: true}, steps: 5")
}

// TestJobsAreTheirRunsAlone: the adapter of a job is that of its run alone, byte for byte,
// whatever the company, with one thread and with two; of all families with LORAFUSE_LONG.
func TestJobsAreTheirRunsAlone(t *testing.T) {
	for i, model := range []string{"llama", "qwen2", "gemma3", "mistral", "qwen3", "llama"} {
		for threads := 1; threads <= 2; threads++ {
			if i > 1 && i%2 == threads%2 {
				continue // one number is enough
			}
			if os.Getenv("LORAFUSE_LONG") == "" && i != 2 && i != 5 {
				continue
			}
			precision := "f32"
			if i == 5 {
				precision = "bf16"
			}
			t.Run(fmt.Sprintf("%s/%d threads/%s", model, threads, precision), func(t *testing.T) {
				w := newWorkshop(t, "../../testdata/lm/"+model+"/model", fmt.Sprintf("threads=%d", threads), "precision="+precision)
				jobs := w.mixedJobs()
				sums, notes, err := w.train(w.together(jobs))
				require.NoError(t, err)
				require.NotContains(t, strings.Join(notes, "\n"), "takes turns")
				for i, job := range jobs {
					require.Equal(t, w.alone(job), sums[fmt.Sprintf("job%d", i)], job)
				}
			})
		}
	}
}

// TestJobsOnAnyDevice: on a device whose bits depend on the company too, jobs side by side
// learn what the CPU's do, but for the order of sums.
func TestJobsOnAnyDevice(t *testing.T) {
	if testdevice.Backend() == backend.CPU {
		t.Skip("TestJobsAreTheirRunsAlone holds the CPU to more")
	}
	w := newWorkshop(t, "../../testdata/lm/qwen3/model", "batch_invariant=false")
	jobs := w.mixedJobs()[:4]
	learned := func(machine string) (all []map[string][]float32) {
		j, err := train.NewJobs(context.Background(), w.together(jobs, "backend="+machine, "output_dir="+t.TempDir()), func(string) train.Observer { return train.Observer{} })
		require.NoError(t, err)
		defer j.Close()
		done, err := j.Train(context.Background())
		require.NoError(t, err)
		for _, x := range done {
			require.NoError(t, x.Err)
			f, err := safetensors.Open(filepath.Join(x.Summary.Adapter, lora.WeightsFile))
			require.NoError(t, err)
			tensors := map[string][]float32{}
			for _, name := range f.Names() {
				v, err := f.Lookup(name)
				require.NoError(t, err)
				x, err := safetensors.As[float32](v)
				require.NoError(t, err)
				tensors[name] = slices.Clone(x) // the file is closed behind it
			}
			require.NoError(t, f.Close())
			all = append(all, tensors)
		}
		return all
	}
	want := learned(backend.CPU)
	for i, tensors := range learned(testdevice.Backend()) {
		for name, got := range tensors {
			var off testdevice.Deviation
			for k := range got {
				off.Add(float64(got[k]), float64(want[i][name][k]))
			}
			require.LessOrEqual(t, off.Relative(), 1e-3, "job %d, %s", i, name)
		}
	}
}

// TestJobsOfAnyMix: as many jobs as come, of any ranks, targets, seeds, lengths and data.
func TestJobsOfAnyMix(t *testing.T) {
	w := newWorkshop(t, tinyModel, "threads=1")
	alone := map[string]string{}
	draws.Check(t, 2, func(r *rapid.T) {
		var jobs []string
		for range rapid.IntRange(2, 5).Draw(r, "jobs") {
			targets := rapid.SampledFrom([]string{"all-linear", "[q_proj, v_proj]", "[k_proj, down_proj]", "[gate_proj]"}).Draw(r, "targets")
			job := fmt.Sprintf("adapter: {r: %d, lora_alpha: %d, target_modules: %s, lora_dropout: %v}, seed: %d, steps: %d, batch_size: %d, gradient_accumulation_steps: %d, max_grad_norm: %d, data: {train: %s}",
				rapid.IntRange(1, 17).Draw(r, "rank"), rapid.IntRange(1, 40).Draw(r, "alpha"), targets, rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(r, "dropout"), rapid.IntRange(0, 3).Draw(r, "seed"), rapid.IntRange(1, 3).Draw(r, "steps"),
				rapid.IntRange(1, 6).Draw(r, "batch size"), rapid.IntRange(1, 3).Draw(r, "accumulation"), rapid.IntRange(0, 1).Draw(r, "norm"), w.data(rapid.IntRange(0, 2).Draw(r, "data")))
			jobs = append(jobs, job)
		}
		require.NoError(r, os.RemoveAll(filepath.Join(w.dir, "jobs")))
		sums, _, err := w.train(w.together(jobs))
		require.NoError(r, err)
		for i, job := range jobs {
			if alone[job] == "" {
				alone[job] = w.alone(job)
			}
			require.Equal(r, alone[job], sums[fmt.Sprintf("job%d", i)], job)
		}
	})
}

// TestJobsThatFail: the NaN of a job, and its end, leave the others as they are.
func TestJobsThatFail(t *testing.T) {
	w := newWorkshop(t, tinyModel)
	jobs := []string{
		"adapter: {r: 4, target_modules: all-linear}",
		"adapter: {r: 4, target_modules: all-linear}, learning_rate: 1e30",
		"adapter: {r: 2, target_modules: [v_proj, o_proj]}, seed: 5, steps: 6",
		"adapter: {r: 4, target_modules: all-linear}, learning_rate: 1e30, on_nan: skip, nan_limit: 2",
	}
	c := w.together(jobs)
	j, err := train.NewJobs(t.Context(), c, func(string) train.Observer { return train.Observer{} })
	require.NoError(t, err)
	defer j.Close()
	all, err := j.Train(t.Context())
	require.ErrorIs(t, err, train.ErrNotFinite)
	require.ErrorContains(t, err, "job job1: train: step ")
	require.ErrorContains(t, err, "job job3: train: step ")
	require.NotContains(t, err.Error(), "\n")
	for i, x := range all {
		require.Equal(t, i%2 == 1, x.Err != nil, x.Name)
		if x.Err == nil {
			require.Equal(t, w.alone(jobs[i]), adapterSum(t, x.Summary.Adapter))
		}
	}
}

// TestJobsTakeTurns: jobs that cannot share a pass are what they are alone too, beside
// those that do.
func TestJobsTakeTurns(t *testing.T) {
	w := newWorkshop(t, tinyModel)
	jobs := []string{
		"adapter: {r: 4, target_modules: all-linear}",
		"adapter: {r: 4, use_dora: true}, steps: 3",
		"adapter: {r: 3, modules_to_save: [lm_head]}",
		"adapter: {r: 4, lora_bias: true}",
		"adapter: {r: 4}, data: {train: " + w.data(2) + "}",
		"adapter: {r: 4, lora_dropout: 0.1, target_modules: [lm_head]}",
	}
	sums, notes, err := w.train(w.together(jobs))
	require.NoError(t, err)
	for _, why := range []string{"job1 takes turns with the others: DoRA", "job2 takes turns with the others: lm_head.weight is trained", "job3 takes turns with the others: lora_bias", "job5 takes turns with the others: lm_head is the head"} {
		require.Contains(t, notes, ": note     the job "+why)
	}
	for i, job := range jobs {
		require.Equal(t, w.alone(job), sums[fmt.Sprintf("job%d", i)], job)
	}
	for _, sets := range [][]string{{"batch_invariant=false"}, {"quantize=int8"}} {
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
		sums, notes, err = w.train(w.together(jobs[:2], sets...))
		require.NoError(t, err)
		require.Contains(t, strings.Join(notes, "\n"), "job0 takes turns")
		for i, job := range jobs[:2] {
			require.Equal(t, w.alone(job, sets...), sums[fmt.Sprintf("job%d", i)], job)
		}
	}
}

// TestJobsResume: jobs that are stopped anywhere, and gone on with, are as if nothing had
// happened; so are those that had come to their end.
func TestJobsResume(t *testing.T) {
	w := newWorkshop(t, tinyModel, "save_steps=2", "steps=6")
	w.base = append(w.base, "data.eval="+w.data(0))
	jobs := w.shortJobs()
	want, _, err := w.train(w.together(jobs))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "jobs")))
	more := 7
	if os.Getenv("LORAFUSE_LONG") != "" {
		more = 3
	}
	for stop := 1; ; stop += more {
		ctx, cancel := context.WithCancel(t.Context())
		seen := 0
		c := w.together(jobs, "resume=latest")
		if stop == 1 {
			_, err := train.NewJobs(ctx, c, func(string) train.Observer { return train.Observer{} })
			require.ErrorIs(t, err, train.ErrNothingToResume)
			require.ErrorContains(t, err, "no checkpoint-* in output_dir "+filepath.Join(c.OutputDir, "job0")+", ")
			c.Resume = ""
		}
		j, err := train.NewJobs(ctx, c, func(string) train.Observer {
			return train.Observer{Step: func(train.Report) {
				if seen++; seen == stop {
					cancel()
				}
			}}
		})
		require.NoError(t, err)
		all, err := j.Train(ctx)
		j.Close()
		cancel()
		if err == nil {
			for _, x := range all {
				require.Equal(t, want[x.Name], adapterSum(t, x.Summary.Adapter), x.Name)
			}
			require.Greater(t, stop, 4)
			return
		}
		require.ErrorIs(t, err, train.ErrInterrupted)
	}
}

// childOfJobs trains jobs in a process that may be killed.
func childOfJobs(c *config.Config) error {
	open := func() (*train.Jobs, error) {
		return train.NewJobs(context.Background(), c, func(string) train.Observer { return train.Observer{} })
	}
	j, err := open()
	if errors.Is(err, train.ErrNothingToResume) {
		c.Resume = ""
		j, err = open()
	}
	if err != nil {
		return err
	}
	defer j.Close()
	_, err = j.Train(context.Background())
	return err
}

// TestJobsKilled: so are jobs that are killed at any moment.
func TestJobsKilled(t *testing.T) {
	w := newWorkshop(t, tinyModel, "save_steps=1", "steps=12")
	w.base[0] = "model=" + absolute(t, tinyModel)
	c := w.together(w.shortJobs())
	want, _, err := w.train(c)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(c.OutputDir))
	raw, err := c.YAML()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, "train.yaml"), raw, 0o666))
	kills := []string{"job0/checkpoint-1", "job1/checkpoint-3", "job2/checkpoint-*", "job0/checkpoint-9"}
	if os.Getenv("LORAFUSE_LONG") == "" {
		kills = []string{"job1/checkpoint-3"}
	}
	for _, after := range kills {
		killChild(t, w.dir, filepath.Join(c.OutputDir, after))
	}
	runChild(t, w.dir)
	for name, sum := range want {
		require.Equal(t, sum, adapterSum(t, filepath.Join(c.OutputDir, name, train.AdapterDir)), name)
	}
}

func absolute(t *testing.T, path string) string {
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}

// TestJobsMemory: the weights count once, and what does not fit is refused before a step.
func TestJobsMemory(t *testing.T) {
	w := newWorkshop(t, tinyModel)
	jobs := w.mixedJobs()
	all, err := train.DryRunJobs(t.Context(), w.together(jobs), t.TempDir(), func(string) train.Observer { return train.Observer{} })
	require.NoError(t, err)
	one, err := train.DryRunJobs(t.Context(), w.together(jobs[:1]), t.TempDir(), func(string) train.Observer { return train.Observer{} })
	require.NoError(t, err)
	require.Equal(t, one.Weights, all.Weights)
	require.Greater(t, all.Adapter, one.Adapter)
	require.NoDirExists(t, filepath.Join(w.dir, "jobs"))
	_, err = train.NewJobs(t.Context(), w.together(jobs, "memory_limit=1MiB"), func(string) train.Observer { return train.Observer{} })
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
}
