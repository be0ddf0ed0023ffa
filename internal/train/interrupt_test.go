package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/train/config"
)

// lookedAt is a context that ends the n-th time somebody looks whether it has.
type lookedAt struct {
	context.Context
	end   context.CancelFunc
	n     int64
	looks atomic.Int64
}

func endAt(n int64) *lookedAt {
	ctx, cancel := context.WithCancel(context.Background())
	return &lookedAt{Context: ctx, end: cancel, n: n}
}

func (c *lookedAt) look() {
	if c.looks.Add(1) == c.n {
		c.end()
	}
}

func (c *lookedAt) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *lookedAt) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// outcome is all that a run leaves but its times: its records, a line each, the
// hash of the adapter and the summary.
type outcome struct {
	records []string
	adapter string
	best    string // folder of save_best: its hash and its evaluation
	summary string
}

func outcomeOf(t *testing.T, c *config.Config, s *train.Summary) outcome {
	records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	o := outcome{adapter: adapterHash(t, c.OutputDir, train.AdapterDir)}
	if b := s.Best; b != nil {
		o.best = fmt.Sprint(b.Step, b.Metric, b.Value, adapterHash(t, c.OutputDir, train.BestDir))
	}
	for _, r := range records {
		r.Scalars = slices.DeleteFunc(r.Scalars, func(x events.Scalar) bool { return x.Name == "tokens_per_second" || x.Name == "mfu" })
		line, err := json.Marshal(r)
		require.NoError(t, err)
		o.records = append(o.records, string(line))
	}
	loss := func(p *float64) string {
		if p == nil {
			return "none"
		}
		return fmt.Sprint(*p)
	}
	o.summary = fmt.Sprint(s.Steps, s.Tokens, s.FirstLoss, s.LastLoss, loss(s.FirstEval), loss(s.LastEval), s.EarlyStop)
	return o
}

// trainUntil runs with the context of Train and of nothing else ended as told.
func trainUntil(t *testing.T, ctx context.Context, c *config.Config) (*train.Summary, error) {
	c = resumable(t, c)
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	return r.Train(ctx)
}

// resumable returns c without resume: latest if there is no checkpoint yet.
func resumable(t *testing.T, c *config.Config) *config.Config {
	path, err := train.LatestCheckpoint(c.OutputDir)
	require.NoError(t, err)
	if c.Resume != "latest" || path != "" {
		return c
	}
	anew := *c
	anew.Resume = ""
	return &anew
}

// interruptible are small runs whose end depends on their evaluations.
var interruptible = map[string][]string{
	"to the last step":  {"eval_steps=2", "eval_at_start=true", "steps=5", "save_steps=2", "gradient_accumulation_steps=2"},
	"stopped early":     {"eval_steps=1", "steps=40", "early_stopping.patience=2", "early_stopping.min_delta=0.2", "save_steps=1", "schedule=constant"},
	"by accuracy":       {"eval_steps=1", "steps=24", "early_stopping.patience=3", "save_steps=1", "schedule=constant", "learning_rate=0.03", "best_metric=eval_accuracy"},
	"an epoch at once":  {"eval_steps=0", "steps=3", "save_steps=0", "batch_size=16", "log.steps=2"},
	"one step":          {"eval_steps=1", "steps=1", "eval_at_start=true"},
	"without an answer": {"eval_steps=1", "steps=4", "learning_rate=1e30", "on_nan=skip", "nan_limit=100", "max_grad_norm=0"},
}

func interruptibleRun(t *testing.T, dir string, sets []string) *config.Config {
	eval := filepath.Join(dir, "eval.jsonl")
	require.NoError(t, os.WriteFile(eval, []byte(`{"text": "one two three"}`+"\n"+`{"text": "four five"}`+"\n"+`{"text": "six seven eight"}`+"\n"), 0o666))
	sets = append([]string{"data.eval=" + eval, "batch_size=2", "eval_batch_size=2", "threads=1", "log.tensorboard=false", "adapter.lora_dropout=0.1", "save_best=true"}, sets...)
	return configure(t, dir, countingRows(24), sets...)
}

// A run that is interrupted anywhere, as often as you like, and gone on with
// leaves the records, the decision to stop and the adapter of one that was
// not.
func TestInterruptedAnywhere(t *testing.T) {
	for name, sets := range interruptible {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time goes into waiting for the disk
			c := interruptibleRun(t, t.TempDir(), sets)
			whole := endAt(math.MaxInt64)
			s, err := trainUntil(t, whole, c)
			require.NoError(t, err)
			want, looks := outcomeOf(t, c, s), whole.looks.Load()
			require.NotEmpty(t, want.records)

			resume := func(cuts ...int64) {
				require.NoError(t, os.RemoveAll(c.OutputDir))
				again := *c
				again.Resume = "latest"
				for _, n := range append(cuts, math.MaxInt64) {
					if s, err = trainUntil(t, endAt(n), &again); err == nil {
						break
					}
					require.ErrorIs(t, err, train.ErrInterrupted, "interrupted at look %d", n)
				}
				require.NoError(t, err)
				got := outcomeOf(t, c, s)
				require.Equal(t, want.records, got.records, "interrupted at looks %v of %d", cuts, looks)
				require.Equal(t, want, got, "interrupted at looks %v of %d", cuts, looks)
			}
			points, chains := int64(2), 1
			if os.Getenv("LORAFUSE_LONG") != "" {
				points, chains = 100, 20
			}
			for n := int64(1); n <= looks; n += max(1, looks/points) {
				resume(n)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range chains {
				resume(1+random.Int64N(looks), 1+random.Int64N(looks), 1+random.Int64N(looks))
			}
		})
	}
}

// A checkpoint without its evaluation may be gone on from twice: the record
// that the first one killed has left is not written again.
func TestKilledAfterPendingEvaluation(t *testing.T) {
	c := interruptibleRun(t, t.TempDir(), []string{"eval_steps=1", "steps=2", "save_steps=0"})
	looks := int64(0)
	for checkpoint := filepath.Join(c.OutputDir, "checkpoint-1"); ; {
		looks += 20
		require.NoError(t, os.RemoveAll(c.OutputDir))
		_, err := trainUntil(t, endAt(looks), c)
		require.ErrorIs(t, err, train.ErrInterrupted)
		raw, err := os.ReadFile(filepath.Join(checkpoint, "training.json"))
		if err == nil && strings.Contains(string(raw), `"pending"`) {
			break
		}
	}
	again := *c
	again.Resume = "latest"
	for range 2 { // the second finds all that the first has written
		s, err := trainUntil(t, context.Background(), &again)
		require.NoError(t, err)
		got := outcomeOf(t, c, s)
		require.Len(t, got.records, 2)
		require.Contains(t, got.records[0], `{"step":1,"loss":`)
		require.Contains(t, got.records[0], `"eval_loss":`)
		require.Contains(t, got.records[1], `{"step":2,"loss":`)
	}
}
