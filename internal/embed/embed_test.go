package embed_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../testdata/encoders"

func texts(t *testing.T) (all []string) {
	raw, err := os.ReadFile(filepath.Join(root, "texts.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &all))
	return all
}

// golden reads a tensor of a golden.
func golden(t *testing.T, name, what string) [][]float32 {
	return rows(t, filepath.Join(root, name, "golden.safetensors"), what)
}

// rows reads the rows of a tensor.
func rows(t *testing.T, file, what string) [][]float32 {
	f, err := safetensors.Open(file)
	require.NoError(t, err)
	defer f.Close()
	v, err := f.Lookup(what)
	require.NoError(t, err)
	x, err := tensor.View[float32](tensor.Tensor{DType: tensor.F32, Shape: v.Shape, Data: v.Bytes()})
	require.NoError(t, err)
	var rows [][]float32
	for i := range v.Shape[0] {
		rows = append(rows, append([]float32(nil), x[i*v.Shape[1]:(i+1)*v.Shape[1]]...))
	}
	return rows
}

func open(t *testing.T, name string, o embed.Options) *embed.Embedder {
	dir := name
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, name)
	}
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	e, err := embed.New(context.Background(), testdevice.Open(t, backend.Options{}), m, nil, o)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

func requireClose(t *testing.T, got, want [][]float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Len(t, got[i], len(want[i]))
		largest, worst := 0.0, 0.0
		for j, w := range want[i] {
			largest = max(largest, math.Abs(float64(w)))
			worst = max(worst, math.Abs(float64(w-got[i][j])))
		}
		require.Less(t, worst, 1e-5*largest, "text %d", i)
	}
}

// TestGoldens compares embeddings with sentence-transformers: every pooling, a dense layer, prompts, truncation, lower
// case, and texts of many lengths.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "*", "golden.safetensors"))
	require.NoError(t, err)
	require.Len(t, files, 22)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run(name, func(t *testing.T) {
			e := open(t, name, embed.Options{})
			got, err := e.Embed(context.Background(), texts(t))
			require.NoError(t, err)
			want := golden(t, name, "embedding")
			requireClose(t, got, want)
			require.Equal(t, len(want[0]), e.Size())
			small, err := open(t, name, embed.Options{BatchTokens: 1}).Embed(context.Background(), texts(t))
			require.NoError(t, err)
			requireClose(t, small, want)
		})
	}
}

// TestBidirectional compares the embeddings of a decoder with is_causal: false. It uses the pooling of its folder, and
// the mean for a folder without modules.json.
func TestBidirectional(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "llama"))))
	config := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, []byte(strings.Replace(string(raw), "{", `{"is_causal": false,`, 1)), 0o644))
	for _, what := range []string{"embedding", "embedding.unlisted"} {
		if what == "embedding.unlisted" {
			for _, name := range []string{"modules.json", "sentence_bert_config.json"} { // which counts for nothing then
				require.NoError(t, os.Remove(filepath.Join(dir, name)))
			}
		}
		got, err := open(t, dir, embed.Options{}).Embed(t.Context(), texts(t))
		require.NoError(t, err)
		requireClose(t, got, rows(t, "../../testdata/bidirectional/embed.safetensors", what))
	}
}

func TestPrompts(t *testing.T) {
	for _, name := range []string{"bert-head", "xlm-roberta"} {
		for _, prompt := range []string{"query", "passage"} {
			want := golden(t, name, "embedding."+prompt)
			for _, o := range []embed.Options{{PromptName: prompt}, {Prompt: prompt + ": "}} {
				got, err := open(t, name, o).Embed(context.Background(), texts(t))
				require.NoError(t, err)
				requireClose(t, got, want)
			}
		}
	}
}

// TestAdapters loads adapters written by PEFT for the body into checkpoints of all spellings: on attention, dense
// layers, embeddings and biases.
func TestAdapters(t *testing.T) {
	for _, name := range []string{"bert", "bert-head", "bert-old"} {
		m, err := model.Open(filepath.Join(root, name))
		require.NoError(t, err)
		defer m.Close()
		a, err := lora.Load(filepath.Join(m.Dir, "adapter"))
		require.NoError(t, err)
		defer a.Close()
		p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		require.NoError(t, a.Check(p, lora.CheckOptions{}).Err())
		state, err := p.StateOf(a, m)
		require.NoError(t, err)
		e, err := embed.New(context.Background(), testdevice.Open(t, backend.Options{}), m, state, embed.Options{})
		require.NoError(t, err)
		defer e.Close()
		got, err := e.Embed(context.Background(), texts(t))
		require.NoError(t, err)
		requireClose(t, got, golden(t, name, "embedding.adapter"))
	}
}

// TestChangingTables: texts whose rotary tables depend on their length run with none
// of another length.
func TestChangingTables(t *testing.T) {
	m, err := model.Open("../../testdata/extra/dynamic")
	require.NoError(t, err)
	defer m.Close()
	words, err := tokenizer.Load(filepath.Join(root, "bert"))
	require.NoError(t, err)
	e, err := embed.New(context.Background(), testdevice.Open(t, backend.Options{}), m, nil, embed.Options{Tokenizer: words})
	require.NoError(t, err)
	defer e.Close()
	rows := [][]int32{make([]int32, 40), {5, 6, 7}, make([]int32, 30)}
	for i := range rows[0] {
		rows[0][i] = int32(i + 2)
	}
	copy(rows[2], rows[0])
	got, err := e.EmbedTokens(context.Background(), rows)
	require.NoError(t, err)
	for i := range rows {
		alone, err := e.EmbedTokens(context.Background(), rows[i:i+1])
		require.NoError(t, err)
		requireClose(t, got[i:i+1], alone)
	}
}

// TestLengths counts tokens and truncated texts as sentence-transformers does.
func TestLengths(t *testing.T) {
	e := open(t, "bert", embed.Options{MaxLength: 8})
	require.Equal(t, 8, e.MaxLength())
	_, err := e.Embed(context.Background(), []string{"one", strings.Repeat("cat ", 20)})
	require.NoError(t, err)
	require.Equal(t, 1, e.Truncated())
	require.Equal(t, 16, open(t, "bert", embed.Options{MaxLength: 99}).MaxLength(), "what the model says is less")
	require.Equal(t, 48, open(t, "bert-head", embed.Options{}).MaxLength(), "the positions of the model")
}

func TestProgress(t *testing.T) {
	var seen [][2]int
	e := open(t, "bert", embed.Options{BatchTokens: 16, Progress: func(done, total int) { seen = append(seen, [2]int{done, total}) }})
	all := texts(t)
	_, err := e.Embed(context.Background(), all)
	require.NoError(t, err)
	require.Greater(t, len(seen), 5)
	require.Equal(t, [2]int{len(all), len(all)}, seen[len(seen)-1])
	none, err := e.Embed(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestErrors(t *testing.T) {
	m, err := model.Open(filepath.Join(root, "bert-head"))
	require.NoError(t, err)
	defer m.Close()
	dev, ctx := testdevice.Open(t, backend.Options{}), context.Background()
	excluded, err := sentence.Read(m.Dir)
	require.NoError(t, err)
	excluded.ExcludePrompt = true
	for _, c := range []struct {
		o    embed.Options
		kind error
		says string
	}{
		{embed.Options{PromptName: "pasage"}, sentence.ErrPrompt, `"pasage", did you mean "passage"?; the model has passage, query`},
		{embed.Options{MaxLength: -1}, embed.ErrOption, "max length -1"},
		{embed.Options{MaxLength: 2}, embed.ErrOption, "a max length of 2, expected more than the 2 special tokens"},
		{embed.Options{BatchTokens: -1}, embed.ErrOption, "batch tokens -1"},
		{embed.Options{Transform: excluded}, sentence.ErrUnsupported, "include_prompt false"},
		{embed.Options{Transform: &sentence.Transform{Pooling: []sentence.Mode{"median"}}}, sentence.ErrUnsupported, `pooling_mode "median"`},
	} {
		_, err := embed.New(ctx, dev, m, nil, c.o)
		require.ErrorIs(t, err, c.kind)
		require.ErrorContains(t, err, c.says)
	}
	e := open(t, "bert", embed.Options{})
	_, err = e.Embed(ctx, []string{"a", "\xff"})
	require.ErrorIs(t, err, tokenizer.ErrInvalidUTF8)
	require.ErrorContains(t, err, "text 1")
	for says, ids := range map[string][]int32{"no tokens": {}, "17 tokens": make([]int32, 17), "id 104 at position 1": {1, 104}, "id -1 at position 0": {-1}} {
		_, err := e.EmbedTokens(ctx, [][]int32{{1}, ids})
		require.ErrorIs(t, err, embed.ErrText)
		require.ErrorContains(t, err, says)
	}
	ended, end := context.WithCancel(ctx)
	end()
	_, err = e.Embed(ended, []string{"a"})
	require.ErrorIs(t, err, context.Canceled)
}
