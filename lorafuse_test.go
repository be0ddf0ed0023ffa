package lorafuse_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/train/config"
)

func open(t *testing.T, dir string, o lorafuse.Options) *lorafuse.Model {
	t.Helper()
	m, err := lorafuse.Open(t.Context(), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// Rows in memory train the adapter that the same rows in a file do, byte for byte.
func TestRowsAreFiles(t *testing.T) {
	rows := []map[string]string{{"text": "one two three"}, {"text": "four five six seven"}, {"text": "eight"}}
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	require.NoError(t, os.WriteFile(file, []byte("{\"text\":\"one two three\"}\n{\"text\":\"four five six seven\"}\n{\"text\":\"eight\"}\n"), 0o666))
	var adapters []string
	for _, data := range []lorafuse.Data{lorafuse.Rows(rows), lorafuse.Files(file)} {
		var steps []int
		tuned, err := lorafuse.FineTune(t.Context(), tiny, data, lorafuse.Recipe{
			OutputDir: t.TempDir(), Steps: 3, BatchSize: 2, Rank: 2, OnStep: func(step, of int, loss float64) { steps = append(steps, step) },
		})
		require.NoError(t, err)
		assert.Equal(t, []int{1, 2, 3}, steps)
		raw, err := os.ReadFile(filepath.Join(tuned.Adapter, "adapter_model.safetensors"))
		require.NoError(t, err)
		adapters = append(adapters, string(raw))
	}
	assert.True(t, adapters[0] == adapters[1])
}

func TestRowErrors(t *testing.T) {
	_, err := lorafuse.FineTune(t.Context(), tiny, lorafuse.Rows([]any{func() {}}), lorafuse.Recipe{OutputDir: t.TempDir()})
	assert.ErrorContains(t, err, "row 0")
	_, err = lorafuse.FineTune(t.Context(), tiny, lorafuse.Rows([]string{"text"}), lorafuse.Recipe{OutputDir: t.TempDir()})
	assert.ErrorContains(t, err, "rows.jsonl:1")
	_, err = lorafuse.FineTune(t.Context(), tiny, lorafuse.Data{}, lorafuse.Recipe{OutputDir: t.TempDir()})
	assert.ErrorContains(t, err, "data.train")
	c := config.Default()
	c.Optimizer = "sgd"
	_, err = lorafuse.FineTune(t.Context(), tiny, lorafuse.Rows([]map[string]string{{"text": "x"}}), lorafuse.Recipe{OutputDir: t.TempDir(), Config: c})
	assert.ErrorContains(t, err, "sgd")
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		dir  string
		o    lorafuse.Options
		want string
	}{
		{"testdata/nothing", lorafuse.Options{}, "testdata/nothing"},
		{tiny, lorafuse.Options{Device: "tpu"}, "tpu"},
		{tiny, lorafuse.Options{Quantize: "nf3"}, "nf3"},
		{tiny, lorafuse.Options{Precision: "f8"}, "f8"},
		{tiny, lorafuse.Options{Threads: -1}, "threads -1"},
		{tiny, lorafuse.Options{ChatTemplate: "none.jinja"}, "none.jinja"},
	} {
		_, err := lorafuse.Open(t.Context(), c.dir, c.o)
		assert.ErrorContains(t, err, c.want)
	}
}

// Calls of many goroutines get the answers that each gets alone, and calls of a closed model
// an error.
func TestConcurrentCalls(t *testing.T) {
	m := open(t, tiny, lorafuse.Options{BatchInvariant: true, MaxSeqs: 4})
	prompts, want := make([]string, 8), make([]string, 8)
	for i := range prompts {
		prompts[i] = fmt.Sprintf("// package p%d\nfunc F%d() error\n// ", i, i)
		var err error
		want[i], err = m.Complete(t.Context(), prompts[i], lorafuse.SamplingParams{MaxTokens: 12, Temperature: 1, Seed: uint64(i)})
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for i := range prompts {
		wg.Go(func() {
			got, err := m.Complete(t.Context(), prompts[i], lorafuse.SamplingParams{MaxTokens: 12, Temperature: 1, Seed: uint64(i)})
			assert.NoError(t, err)
			assert.Equal(t, want[i], got)
		})
	}
	wg.Wait()
	require.NoError(t, m.Close())
	_, err := m.Complete(t.Context(), "x", lorafuse.SamplingParams{})
	require.ErrorIs(t, err, lorafuse.ErrClosed)
	_, err = m.Embed(t.Context(), []string{"x"}, "")
	require.ErrorIs(t, err, lorafuse.ErrClosed)
}

func TestCallErrors(t *testing.T) {
	m := open(t, tiny, lorafuse.Options{})
	_, err := m.Complete(t.Context(), "x", lorafuse.SamplingParams{Adapter: "sql"})
	assert.ErrorContains(t, err, "sql")
	_, err = m.Complete(t.Context(), "x", lorafuse.SamplingParams{MaxTokens: -1})
	assert.ErrorIs(t, err, lorafuse.ErrOption)
	_, err = m.Complete(t.Context(), "x", lorafuse.SamplingParams{Schema: []byte(`{"type": "nothing"}`)})
	assert.ErrorContains(t, err, "Schema")
	for _, err := range m.Chat(t.Context(), []lorafuse.Message{{Role: "user", Content: "x"}}, lorafuse.SamplingParams{}) {
		assert.ErrorContains(t, err, "chat template")
	}
	assert.ErrorContains(t, m.LoadAdapter(t.Context(), "sql", "testdata/peft/head/adapter"), "lora")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = m.Complete(ended, "x", lorafuse.SamplingParams{})
	assert.True(t, errors.Is(err, context.Canceled))
}

// The log-probabilities of a text are those that its tokens had when they were generated.
func TestScore(t *testing.T) {
	m := open(t, tiny, lorafuse.Options{})
	scores, err := m.Score(t.Context(), "// Close closes the file.", "")
	require.NoError(t, err)
	ids, err := m.Encode("// Close closes the file.")
	require.NoError(t, err)
	require.Len(t, scores, len(ids)-1)
	var text strings.Builder
	for i, s := range scores {
		assert.Equal(t, ids[i+1], s.ID)
		assert.Negative(t, s.Logprob)
		text.WriteString(s.Text)
	}
	assert.True(t, strings.HasSuffix("// Close closes the file.", text.String()))
}

// A published adapter answers at once, and is saved as it was published.
func TestTrainer(t *testing.T) {
	m := open(t, tiny, lorafuse.Options{})
	trainer, err := m.NewTrainer(t.Context(), lorafuse.TrainerOptions{Rank: 4, Head: true})
	require.NoError(t, err)
	defer trainer.Close()
	tokens, err := m.Encode("tick tock")
	require.NoError(t, err)
	batch := []lorafuse.Datum{{Tokens: tokens[:len(tokens)-1], Targets: tokens[1:]}}
	first, last := 0.0, 0.0
	for i := range 30 {
		last, err = trainer.ForwardBackward(t.Context(), batch, nil)
		require.NoError(t, err)
		if i == 0 {
			first = last
		}
		require.NoError(t, trainer.Step(t.Context(), 1e-2))
	}
	require.Less(t, last, first/4)
	require.NoError(t, trainer.Publish(t.Context(), "clock"))
	dir := filepath.Join(t.TempDir(), "adapter")
	require.NoError(t, trainer.Save(t.Context(), dir))
	require.NoError(t, m.LoadAdapter(t.Context(), "saved", dir))
	published, err := m.Score(t.Context(), "tick tock", "clock")
	require.NoError(t, err)
	saved, err := m.Score(t.Context(), "tick tock", "saved")
	require.NoError(t, err)
	assert.Equal(t, published, saved)
	_, err = trainer.ForwardBackward(t.Context(), batch, func(x [][]float32) (float64, [][]float32) { return 0, nil })
	assert.ErrorIs(t, err, lorafuse.ErrOption)
}
