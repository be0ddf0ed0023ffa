package lorafuse_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tokenizer"
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
			OutputDir: t.TempDir(), Steps: 3, BatchSize: 2, Rank: 2, OnStep: func(s lorafuse.Step) { steps = append(steps, s.Step) },
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
	_, err := m.NewTrainer(t.Context(), lorafuse.TrainerOptions{Memory: -1})
	require.ErrorContains(t, err, "memory: invalid input: found -1")
	trainer, err := m.NewTrainer(t.Context(), lorafuse.TrainerOptions{Rank: 4, Head: true, Memory: 1 << 30})
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

// Classes have the scores that the logits of PyTorch give, of every kind of classifier.
func TestClassify(t *testing.T) {
	cases, err := filepath.Glob("testdata/tasks/classes-*")
	require.NoError(t, err)
	require.Len(t, cases, 11)
	for _, dir := range cases {
		if filepath.Base(dir) == "classes-bert" {
			continue // pairs of texts
		}
		var golden struct {
			Base, Problem string
			Labels        []string
		}
		raw, err := os.ReadFile(filepath.Join(dir, "case.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &golden))
		f, err := safetensors.Open(filepath.Join(dir, "logits.safetensors"))
		require.NoError(t, err)
		v, err := f.Lookup("final")
		require.NoError(t, err)
		logits, err := safetensors.As[float32](v)
		require.NoError(t, err)

		base, merged := filepath.Join("testdata/encoders", golden.Base), t.TempDir()
		for _, from := range []string{base, filepath.Join(dir, "merged")} { // the tokenizer is in the first one only
			require.NoError(t, exec.Command("cp", "-r", from+"/.", merged).Run())
		}
		texts := texts(t, filepath.Join(dir, "rows.jsonl"))
		got, err := open(t, merged, lorafuse.Options{}).Classify(t.Context(), texts, "")
		require.NoError(t, err)
		require.Len(t, got, len(texts))
		classes := len(logits) / len(texts)
		for i, row := range got {
			require.Len(t, row, classes)
			sum := 0.0
			for _, x := range logits[i*classes:][:classes] {
				sum += math.Exp(float64(x))
			}
			for j, c := range row {
				x := float64(logits[i*classes+j])
				want := map[string]float64{"regression": x, "multi_label_classification": 1 / (1 + math.Exp(-x)), "single_label_classification": math.Exp(x) / sum}[golden.Problem]
				require.InDelta(t, want, c.Score, 1e-4, "%s: text %d, class %d", dir, i, j)
			}
		}
		require.NoError(t, f.Close())

		m := open(t, base, lorafuse.Options{})
		require.NoError(t, m.LoadAdapter(t.Context(), "head", filepath.Join(dir, "final")))
		other, err := m.Classify(t.Context(), texts, "head")
		require.NoError(t, err)
		if golden.Problem != "multi_label_classification" { // which only the merged model says
			require.InDelta(t, got[0][0].Score, other[0][0].Score, 1e-4)
		}
		here := filepath.Join(t.TempDir(), "merged")
		_, err = lorafuse.Merge(t.Context(), base, filepath.Join(dir, "final"), here, lorafuse.MergeOptions{})
		require.NoError(t, err)
		again, err := open(t, here, lorafuse.Options{}).Classify(t.Context(), texts, "")
		require.NoError(t, err)
		require.InDelta(t, other[0][0].Score, again[0][0].Score, 3e-3) // the merged weights are rounded
		_, err = m.Classify(t.Context(), texts, "")
		require.Error(t, err)
		_, err = m.Classify(t.Context(), []string{"a", "b\xff"}, "head")
		require.ErrorIs(t, err, tokenizer.ErrInvalidUTF8)
		require.ErrorContains(t, err, "text 1")
		_, err = m.Classify(t.Context(), texts, "nobody")
		require.ErrorIs(t, err, lora.ErrNotFound)
	}
}

// texts returns the texts of labelled rows.
func texts(t *testing.T, path string) (all []string) {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(raw)) {
		var row struct{ Text string }
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		all = append(all, row.Text)
	}
	return all
}

// A seed gives the same image whenever it is drawn, and an adapter another one.
func TestDraw(t *testing.T) {
	p, err := lorafuse.OpenPipeline(t.Context(), "examples/pictures/model", lorafuse.Options{})
	require.NoError(t, err)
	defer p.Close()
	d := lorafuse.DrawParams{Embedding: "examples/pictures/prompts/24-red-star.safetensors", Width: 32, Height: 32, Steps: 3, Seed: 7}
	first, err := p.Draw(t.Context(), "", d)
	require.NoError(t, err)
	again, err := p.Draw(t.Context(), "", d)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	d.Seed = 8
	other, err := p.Draw(t.Context(), "", d)
	require.NoError(t, err)
	assert.NotEqual(t, first, other)

	d.Width = 31
	_, err = p.Draw(t.Context(), "", d)
	assert.ErrorContains(t, err, "31x32")
	d.Width, d.Adapter = 32, "style"
	_, err = p.Draw(t.Context(), "", d)
	assert.ErrorIs(t, err, lora.ErrNotFound)
	_, err = p.Draw(t.Context(), "a red star", lorafuse.DrawParams{Width: 32, Height: 32})
	assert.ErrorContains(t, err, "text_encoder")
	assert.ErrorContains(t, p.LoadAdapter(t.Context(), "style", "testdata/peft/head/adapter"), "adapter")
	require.NoError(t, p.Close())
	_, err = p.Draw(t.Context(), "", d)
	assert.ErrorIs(t, err, lorafuse.ErrClosed)
}

// A folder of images that cannot be trained on is refused before anything is encoded.
func TestBadImages(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("examples/pictures/images")))
	captions, err := filepath.Glob(dir + "/*.txt")
	require.NoError(t, err)
	require.NoError(t, os.Remove(captions[0]))
	out := t.TempDir()
	_, err = lorafuse.FineTune(t.Context(), "examples/pictures/model", lorafuse.Images(dir), lorafuse.Recipe{OutputDir: out, Steps: 1, Resolution: 32})
	require.ErrorContains(t, err, "diffusion.images")
	assert.NoDirExists(t, filepath.Join(out, "cache"))
}

// A handler offers all that the command serves, and ends with its model.
func TestHandler(t *testing.T) {
	dir := t.TempDir()
	m := open(t, tiny, lorafuse.Options{MaxSeqs: 2})
	trainer, err := m.NewTrainer(t.Context(), lorafuse.TrainerOptions{Rank: 2})
	require.NoError(t, err)
	defer trainer.Close()
	require.NoError(t, trainer.Publish(t.Context(), "fresh"))
	h, err := m.Handler(t.Context(), lorafuse.ServeOptions{Name: "godoc", TrainDir: dir, Keys: []string{"ann secret"}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ask := func(method, path, body string) (int, string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("X-API-Key", "secret")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for path, want := range map[string]string{
		"/": "<html", "/ready": "", "/v1/models": `"fresh"`, "/v1/files": `"data"`, "/v1/fine_tuning/jobs": `"data"`, "/api/v1/get_server_capabilities": "godoc",
	} {
		code, text := ask("GET", path, "")
		assert.Equal(t, 200, code, path)
		assert.Contains(t, text, want, path)
	}
	code, text := ask("POST", "/v1/completions", `{"model": "fresh", "prompt": "// Close", "max_tokens": 2}`)
	assert.Equal(t, 200, code, text)
	_, text = ask("GET", "/metrics", "")
	assert.Regexp(t, `vllm:generation_tokens_total\{[^}]*\} 2`, text)

	open, err := m.Handler(t.Context(), lorafuse.ServeOptions{AllowedHosts: []string{"lora.example.com"}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for host, want := range map[string]int{"lora.example.com": 200, "localhost:8000": 200, "192.0.2.7": 200, "evil.example.com": 421} {
		r, w := httptest.NewRequest("GET", "/v1/models", nil), httptest.NewRecorder()
		r.Host = host
		open.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, host)
	}

	_, err = m.Handler(t.Context(), lorafuse.ServeOptions{TrainDir: dir})
	require.ErrorContains(t, err, "option TrainDir")
	_, err = m.Complete(t.Context(), "x", lorafuse.SamplingParams{MaxTokens: 1}) // the engine has survived
	require.NoError(t, err)
}
