package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/train/config"
)

// TestSaveBest: best has the adapter of the step with the lowest evaluation loss, and keeping it
// does not change the run.
func TestSaveBest(t *testing.T) {
	sets := []string{"eval_steps=1", "steps=8", "save_steps=1", "save_limit=0", "learning_rate=0.3"}
	plain := interruptibleRun(t, t.TempDir(), append(sets, "save_best=false"))
	_, err := trainUntil(t, context.Background(), plain)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(plain.OutputDir, train.BestDir))

	c := interruptibleRun(t, t.TempDir(), sets)
	for range 2 { // the second run begins anew: what the first has left does not count
		s, err := trainUntil(t, context.Background(), c)
		require.NoError(t, err)
		require.Equal(t, adapterSum(t, filepath.Join(plain.OutputDir, train.AdapterDir)), adapterSum(t, s.Adapter))
		records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
		require.NoError(t, err)
		least, step := math.Inf(1), 0
		for _, r := range records {
			if v, ok := r.Value(events.EvalLoss); ok && v < least {
				least, step = v, int(r.Step)
			}
		}
		require.Less(t, step, 8, "the last evaluation is the best: nothing is tested")
		dir := filepath.Join(c.OutputDir, train.BestDir)
		require.Equal(t, &train.Best{Step: step, Metric: events.EvalLoss, Value: least, Adapter: dir}, s.Best)
		require.Equal(t, adapterSum(t, filepath.Join(c.OutputDir, fmt.Sprintf("checkpoint-%d", step))), adapterSum(t, dir))
		require.FileExists(t, filepath.Join(dir, "tokenizer.json"))
		var b train.Best
		raw, err := os.ReadFile(filepath.Join(dir, "best.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &b))
		require.Equal(t, train.Best{Step: step, Metric: events.EvalLoss, Value: least}, b)
		checkpoints, err := filepath.Glob(filepath.Join(c.OutputDir, "checkpoint-*"))
		require.NoError(t, err)
		for _, path := range checkpoints {
			require.NoError(t, os.RemoveAll(path))
		}
	}
}

// TestSaveBestResumed: a resumed run compares with the best evaluation before it, and reports
// one that it cannot read.
func TestSaveBestResumed(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"eval_steps=1", "steps=8", "save_steps=1", "save_limit=0", "learning_rate=0.3"})
	s, err := trainUntil(t, context.Background(), c)
	require.NoError(t, err)
	again := *c
	again.Resume = filepath.Join(c.OutputDir, fmt.Sprintf("checkpoint-%d", s.Best.Step))
	resumed, err := trainUntil(t, context.Background(), &again)
	require.NoError(t, err)
	require.Equal(t, s.Best, resumed.Best)

	var notes []string
	resume := func() (*train.Summary, error) {
		notes = nil
		r, err := train.New(t.Context(), &again, train.Observer{Note: func(text string) { notes = append(notes, text) }})
		require.NoError(t, err)
		defer r.Close()
		return r.Train(t.Context())
	}
	file := filepath.Join(c.OutputDir, train.BestDir, "best.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o666))
	_, err = resume()
	require.ErrorContains(t, err, "train: save_best: "+file+": ")
	require.NoError(t, os.RemoveAll(filepath.Dir(file)))
	later, err := resume()
	require.NoError(t, err)
	require.Greater(t, later.Best.Step, s.Best.Step)
	require.Contains(t, notes, fmt.Sprintf("note     save_best: %s is missing: evaluations before step %d do not count", file, s.Best.Step))
}

// Each job keeps its own best adapter, that of a run alone.
func TestSaveBestOfJobs(t *testing.T) {
	w := newWorkshop(t, tinyModel)
	w.base = append(w.base, "save_best=true", "eval_steps=1", "data.eval="+w.data(0))
	c := w.together([]string{"seed: 1", "seed: 2, learning_rate: 0.1"})
	_, _, err := w.train(c)
	require.NoError(t, err)
	each, err := c.JobConfigs()
	require.NoError(t, err)
	for _, job := range each {
		alone := *job.Config
		alone.OutputDir = filepath.Join(w.dir, "alone", job.Name)
		s, err := trainUntil(t, context.Background(), &alone)
		require.NoError(t, err)
		require.Equal(t, adapterHash(t, alone.OutputDir, train.BestDir), adapterHash(t, job.OutputDir, train.BestDir))
		require.Equal(t, filepath.Join(alone.OutputDir, train.BestDir), s.Best.Adapter)
	}
}

func TestBestMetric(t *testing.T) {
	c := taskCases(t, config.TaskEmbedding)[0].config(t)
	c.SaveBest, c.BestMetric = true, events.EvalAccuracy
	_, _, err := train.DryRun(t.Context(), c, train.Observer{})
	require.ErrorIs(t, err, config.ErrConflict)
	c.Data.Eval = c.Data.Train
	_, _, err = train.DryRun(t.Context(), c, train.Observer{})
	require.ErrorIs(t, err, train.ErrOption)
	require.ErrorContains(t, err, "best_metric: invalid option: found eval_accuracy, expected eval_loss")
	c.SaveBest, c.EarlyStopping.Patience = false, 1
	_, _, err = train.DryRun(t.Context(), c, train.Observer{})
	require.ErrorIs(t, err, train.ErrOption)
}
