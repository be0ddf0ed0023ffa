package train_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/train"
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
		return strings.Contains(job, key+":") || key == "steps" && strings.Contains(job, "epochs:") || key == "data.train" && strings.Contains(job, "data:")
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
		"adapter: {r: 3, target_modules: [k_proj, o_proj, up_proj], rank_pattern: {o_proj: 7}}, batch_size: 5, steps: 2, activation_checkpointing: true, data: {train: " + w.data(2) + ", packing: true, max_length: 128}",
	}
}

// TestJobsAreTheirRunsAlone: the adapter of a job is that of its run alone, byte for byte,
// whatever the company, with one thread and with two.
func TestJobsAreTheirRunsAlone(t *testing.T) {
	for _, model := range []string{"llama", "qwen2"} {
		for threads := 1; threads <= 2; threads++ {
			t.Run(fmt.Sprintf("%s/%d threads", model, threads), func(t *testing.T) {
				w := newWorkshop(t, "../testdata/lm/"+model+"/model", fmt.Sprintf("threads=%d", threads))
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

var _ = rapid.Check
