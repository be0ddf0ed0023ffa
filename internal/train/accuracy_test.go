package train_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// TestTokenAccuracy: evaluations count the targets that have the largest of the logits: with a
// soft cap, a factor or a bias, and with an adapter in the head.
func TestTokenAccuracy(t *testing.T) {
	for _, c := range []struct{ model, target string }{
		{"lm/llama/model", "q_proj"}, {"lm/llama/model", "lm_head"}, {"extra/gemma2", "q_proj"}, {"extra/granite", "q_proj"}, {"extra/cohere", "q_proj"}, {"extra/phi3", "o_proj"}, {"lm/qwen2/model", "q_proj"},
	} {
		t.Run(c.model+" "+c.target, func(t *testing.T) {
			dir := filepath.Join("../../testdata", c.model)
			if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
				dir = filepath.Join(dir, "model")
			}
			m, err := model.Open(dir)
			require.NoError(t, err)
			defer m.Close()
			config := lora.DefaultConfig()
			config.TargetModules, config.R = lora.ModuleSet{Names: []string{c.target}}, 4
			p, err := lora.NewPlacement(config, lora.ModelOf(m.Config.ModelType, m.Modules()))
			require.NoError(t, err)
			state, err := p.InitialState(m, 7)
			require.NoError(t, err)
			for _, x := range state.Values { // of B too, which begins with zeros
				for i := range x {
					x[i] += 0.3 * float32(i%7-3)
				}
			}
			rows := [][]int32{{5, 9, 13, 2, 57, 31, 8}, {40, 3, 3, 9, 60, 22, 17, 4, 50, 1, 33}, {11, 12}}
			dev := testdevice.Open(t, backend.Options{})
			scorer, err := generate.NewScorer(dev, m, state, 64)
			require.NoError(t, err)
			logits, err := scorer.Logits(t.Context(), rows)
			require.NoError(t, err)
			scorer.Close()
			var b data.Batch
			for _, row := range rows {
				b.Add(row, row)
			}
			vocab, labels := m.Config.VocabSize, b.Labels()
			best := make([]int32, len(labels))
			for i := range labels {
				scores := logits[i*vocab : (i+1)*vocab]
				best[i] = int32(slices.Index(scores, slices.Max(scores)))
			}
			e, err := train.NewEngine(t.Context(), dev, m, state, train.EngineOptions{MaxTokens: 64, MaxEvalTokens: 64, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}})
			require.NoError(t, err)
			defer e.Close()
			for _, every := range []int{1, 2, 3, 100} { // every n-th target is right, some carry no loss
				want := 0
				for i := range labels {
					labels[i] = best[i]
					switch {
					case i%5 == 4:
						labels[i] = -1
					case i%every != 0:
						labels[i] = second(logits[i*vocab:(i+1)*vocab], best[i])
					default:
						want++
					}
				}
				got, err := e.Right(t.Context(), &b)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		})
	}
}

// second returns the index of the largest score but one.
func second(scores []float32, best int32) int32 {
	at := -1
	for i, x := range scores {
		if int32(i) != best && (at < 0 || x > scores[at]) {
			at = i
		}
	}
	return int32(at)
}

// The share of right targets is in the metrics and in the summary, and can select the best
// evaluation.
func TestTokenAccuracyOfRun(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"eval_steps=1", "steps=8", "learning_rate=0.1", "best_metric=eval_accuracy"})
	s, err := trainUntil(t, t.Context(), c)
	require.NoError(t, err)
	records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	most, step := -1.0, 0
	for _, r := range records {
		if v, ok := r.Value(events.EvalAccuracy); ok && v > most {
			most, step = v, int(r.Step)
		}
	}
	require.Greater(t, most, 0.0)
	require.LessOrEqual(t, most, 1.0)
	require.Equal(t, &train.Best{Step: step, Metric: events.EvalAccuracy, Value: most, Adapter: filepath.Join(c.OutputDir, train.BestDir)}, s.Best)
	last, _ := records[len(records)-1].Value(events.EvalAccuracy)
	require.Equal(t, last, *s.Accuracy)
}

// TestEarlyStoppingMetric: best_metric decides when a run stops, without save_best too, and a run
// resumes only with the same metric.
func TestEarlyStoppingMetric(t *testing.T) {
	configured := func(sets ...string) *config.Config {
		dir := t.TempDir()
		return configure(t, dir, countingRows(8), append(sets, "data.eval="+filepath.Join(dir, "rows.jsonl"), "batch_size=4", "eval_steps=1", "steps=24", "learning_rate=0.05", "schedule=constant", "save_steps=1")...)
	}
	whole := configured()
	_, err := trainUntil(t, t.Context(), whole)
	require.NoError(t, err)
	records, err := events.ReadMetrics(filepath.Join(whole.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	const patience = 3
	stop := func(metric string, sign, delta float64) int { // after patience evaluations without a larger sign·value
		most, waited := math.Inf(-1), 0
		for _, r := range records {
			v, ok := r.Value(metric)
			require.True(t, ok)
			if waited++; sign*v > most+delta {
				most, waited = sign*v, 0
			}
			if waited == patience {
				return int(r.Step)
			}
		}
		t.Fatal("the run does not stop: nothing is tested")
		return 0
	}
	require.NotEqual(t, stop(events.EvalLoss, -1, 0), stop(events.EvalAccuracy, 1, 0))
	require.NotEqual(t, stop(events.EvalAccuracy, 1, 0.1), stop(events.EvalAccuracy, 1, 0))
	for _, c := range []struct {
		metric string
		delta  float64
		want   int
	}{
		{events.EvalLoss, 0, stop(events.EvalLoss, -1, 0)},
		{events.EvalAccuracy, 0, stop(events.EvalAccuracy, 1, 0)},
		{events.EvalAccuracy, 0.1, stop(events.EvalAccuracy, 1, 0.1)},
	} {
		run := configured("best_metric="+c.metric, fmt.Sprint("early_stopping.patience=", patience), fmt.Sprint("early_stopping.min_delta=", c.delta))
		s, err := trainUntil(t, t.Context(), run)
		require.NoError(t, err)
		require.True(t, s.EarlyStop)
		require.Equal(t, c.want, s.Steps, c.metric)

		run.Resume, run.BestMetric = "latest", map[string]string{events.EvalLoss: events.EvalAccuracy, events.EvalAccuracy: events.EvalLoss}[c.metric]
		_, err = train.New(t.Context(), run, train.Observer{})
		require.ErrorIs(t, err, train.ErrCheckpoint)
		require.ErrorContains(t, err, "best_metric")
	}
}
