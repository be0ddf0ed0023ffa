package train_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

const tinyModel = "../../testdata/lm/llama/model"

// configure makes a configuration over a data file of rows in dir.
func configure(t *testing.T, dir string, rows []string, sets ...string) *config.Config {
	file := filepath.Join(dir, "rows.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(rows, "\n")+"\n"), 0o666))
	sets = append([]string{
		"model=" + tinyModel, "output_dir=" + filepath.Join(dir, "out"), "data.train=" + file, "adapter.r=4",
		"adapter.target_modules=all-linear", "steps=6", "batch_size=8", "learning_rate=0.01", "log.plot=false", "backend=" + testdevice.Backend(), "precision=f32",
	}, sets...)
	c, err := config.Parse("test", nil, sets...)
	require.NoError(t, err)
	return c
}

func countingRows(n int) []string {
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf(`{"prompt": "after %d comes", "completion": " the number %d%s"}`, i, i+1, strings.Repeat("!", i%5)))
	}
	return rows
}

func losses(t *testing.T, c *config.Config) []float64 {
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Train(context.Background())
	require.NoError(t, err)
	records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	var out []float64
	for _, x := range records {
		if v, ok := x.Value(events.Loss); ok {
			out = append(out, v)
		}
	}
	return out
}

// The loss of a step must not depend on how it is split into micro-batches.
func TestAccumulationSplit(t *testing.T) {
	want := losses(t, configure(t, t.TempDir(), countingRows(61)))
	for _, split := range []int{2, 8} {
		got := losses(t, configure(t, t.TempDir(), countingRows(61), fmt.Sprintf("batch_size=%d", 8/split), fmt.Sprintf("gradient_accumulation_steps=%d", split)))
		require.InDeltaSlice(t, want, got, 2e-5, "split in %d", split)
	}
}

func TestActivationCheckpointing(t *testing.T) {
	plain := configure(t, t.TempDir(), countingRows(40), "adapter.lora_dropout=0.1")
	recompute := configure(t, t.TempDir(), countingRows(40), "adapter.lora_dropout=0.1", "activation_checkpointing=true")
	require.Equal(t, losses(t, plain), losses(t, recompute))
	require.Equal(t, adapterHash(t, plain.OutputDir, train.AdapterDir), adapterHash(t, recompute.OutputDir, train.AdapterDir))
}

func TestEvaluationAndEarlyStop(t *testing.T) {
	dir := t.TempDir()
	c := configure(t, dir, countingRows(40), "data.eval="+filepath.Join(dir, "rows.jsonl"), "eval_steps=1", "eval_at_start=true",
		"learning_rate=0", "early_stopping.patience=2", "steps=50", "log.plot=true")
	r, err := train.New(context.Background(), c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	require.True(t, s.EarlyStop)
	require.Equal(t, 3, s.Steps, "one evaluation to begin with, two that were no better")
	require.Equal(t, *s.FirstEval, *s.LastEval)
	require.FileExists(t, filepath.Join(c.OutputDir, "loss.svg"))
}

// TestMLflowLost: the note on metrics that did not reach the server names the log that has them.
func TestMLflowLost(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer broken.Close()
	t.Setenv("MLFLOW_TRACKING_URI", broken.URL)
	for sets, want := range map[string]string{
		"log.metrics=true":                        "metrics.jsonl has them",
		"log.metrics=false log.tensorboard=false": "no other log has them",
		"log.metrics=false":                       "tensorboard has them",
	} {
		c := configure(t, t.TempDir(), countingRows(8), append(strings.Fields(sets), "log.mlflow=true", "log.plot=false", "steps=2", "log.steps=1")...)
		var notes []string
		r, err := train.New(t.Context(), c, train.Observer{Note: func(text string) { notes = append(notes, text) }})
		require.NoError(t, err)
		_, err = r.Train(t.Context())
		require.NoError(t, err)
		r.Close()
		require.Contains(t, notes, "note     log.mlflow: 10 metrics did not reach the server; "+want)
	}
}

func TestNotFinite(t *testing.T) {
	broken := func(sets ...string) error {
		c := configure(t, t.TempDir(), countingRows(40), append([]string{"learning_rate=1e30", "max_grad_norm=0", "steps=30"}, sets...)...)
		r, err := train.New(context.Background(), c, train.Observer{})
		require.NoError(t, err)
		defer r.Close()
		_, err = r.Train(context.Background())
		return err
	}
	require.ErrorIs(t, broken(), train.ErrNotFinite)
	err := broken("on_nan=skip", "nan_limit=3")
	require.ErrorIs(t, err, train.ErrNotFinite)
	require.ErrorContains(t, err, "3 steps in a row")
}

func TestMemoryLimit(t *testing.T) {
	c := configure(t, t.TempDir(), countingRows(40), "memory_limit=200KiB")
	_, err := train.New(context.Background(), c, train.Observer{})
	require.ErrorContains(t, err, "the plan needs")
	require.ErrorContains(t, err, "memory_limit is 200.0 KiB")
}

// A finished adapter is the beginning of another run.
func TestInitAdapter(t *testing.T) {
	first := configure(t, t.TempDir(), countingRows(40))
	before := losses(t, first)
	c := configure(t, t.TempDir(), countingRows(40))
	c2, err := config.Parse("test", nil, "model="+tinyModel, "output_dir="+c.OutputDir, "data.train="+c.Data.Train[0],
		"init_adapter="+filepath.Join(first.OutputDir, train.AdapterDir), "steps=6", "batch_size=8", "learning_rate=0.01", "log.plot=false")
	require.NoError(t, err)
	require.Less(t, losses(t, c2)[0], before[0]-0.1, "the second run must begin where the first ended")
}

// TestInitAdapterTexts: training goes on with the tokenizer and the chat template of an
// adapter, and saves them with the new one.
func TestInitAdapterTexts(t *testing.T) {
	first := configure(t, t.TempDir(), countingRows(8), "steps=1")
	losses(t, first)
	adapter := filepath.Join(first.OutputDir, train.AdapterDir)
	const template = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o666)) }
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	write(rows, strings.Repeat(`{"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "quick brown"}]}`+"\n", 4))
	run := func(more ...string) (*config.Config, error) {
		c, err := config.Parse("test", nil, append([]string{"model=" + tinyModel, "output_dir=" + t.TempDir(), "data.train=" + rows, "data.train_on=all",
			"init_adapter=" + adapter, "steps=2", "batch_size=2", "log.plot=false"}, more...)...)
		require.NoError(t, err)
		r, err := train.New(t.Context(), c, train.Observer{})
		if err != nil {
			return c, err
		}
		defer r.Close()
		_, err = r.Train(t.Context())
		return c, err
	}
	_, err := run()
	require.ErrorContains(t, err, "chat template")
	file := filepath.Join(t.TempDir(), "chat.jinja")
	write(file, template)
	want, err := run("data.chat_template=" + file)
	require.NoError(t, err)

	write(filepath.Join(adapter, "chat_template.jinja"), template)
	got, err := run("save_steps=1")
	require.NoError(t, err)
	read := func(dir, name string) string {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(raw)
	}
	weights := filepath.Join(train.AdapterDir, lora.WeightsFile)
	require.Equal(t, read(want.OutputDir, weights), read(got.OutputDir, weights))
	for _, dir := range []string{train.AdapterDir, "checkpoint-1"} {
		require.Equal(t, template, read(filepath.Join(got.OutputDir, dir), "chat_template.jinja"))
	}

	words := read(tinyModel, "tokenizer.json")
	write(filepath.Join(adapter, "tokenizer.json"), strings.Replace(words, `"added_tokens": [`, `"added_tokens": [{"id": 512, "content": "<more>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},`, 1))
	_, err = run()
	require.ErrorContains(t, err, `more tokens than embeddings: token "<more>" has id 512`)
}

// PiSSA trains the principal part of the weights; what is saved is a plain
// adapter of twice the rank for the unchanged base.
func TestPiSSAIsSavedPlain(t *testing.T) {
	for _, method := range []string{"pissa", "olora", "pissa_niter_4"} {
		c := configure(t, t.TempDir(), countingRows(40), "adapter.init_lora_weights="+method, "data.eval="+"testdata/none")
		c.Data.Eval = c.Data.Train
		r, err := train.New(context.Background(), c, train.Observer{})
		require.NoError(t, err)
		s, err := r.Train(context.Background())
		require.NoError(t, err)
		r.Close()
		a, err := lora.Load(s.Adapter)
		require.NoError(t, err)
		require.Equal(t, lora.InitDefault, a.Config.InitLoraWeights)
		require.Equal(t, 8, a.Config.R)

		again, err := config.Parse("test", nil, "model="+tinyModel, "output_dir="+t.TempDir(), "data.train="+c.Data.Train[0],
			"data.eval="+c.Data.Train[0], "init_adapter="+s.Adapter, "steps=1", "batch_size=8", "learning_rate=0", "eval_at_start=true", "log.plot=false")
		require.NoError(t, err)
		r, err = train.New(context.Background(), again, train.Observer{})
		require.NoError(t, err)
		s2, err := r.Train(context.Background())
		require.NoError(t, err)
		r.Close()
		require.Less(t, math.Abs(*s2.FirstEval-*s.LastEval), 1e-4, "%s: the plain adapter on the unchanged base gives another loss", method)
	}
}
