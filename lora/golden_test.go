package lora_test

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// goldenAdapter is an adapter and what PyTorch and PEFT computed with it.
type goldenAdapter struct{ name, dir, model, file string }

func goldenAdapters(t *testing.T) []goldenAdapter {
	var all []goldenAdapter
	dirs, err := filepath.Glob("../testdata/lm/*/adapters/*")
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	for _, dir := range dirs {
		all = append(all, goldenAdapter{dir: dir, model: filepath.Join(dir, "../../model"), file: filepath.Join(dir, "golden.safetensors")})
	}
	cases, err := filepath.Glob("../testdata/peft/*/case.json")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, path := range cases {
		dir := filepath.Dir(path)
		var c struct{ Base string }
		readJSON(t, path, &c)
		base := filepath.Join(dir, c.Base)
		for _, part := range []string{"", "converted"} {
			a := goldenAdapter{dir: filepath.Join(dir, part, "adapter"), model: base, file: filepath.Join(dir, part, "golden.safetensors")}
			if _, err := os.Stat(a.file); err == nil {
				all = append(all, a)
			}
		}
	}
	for i := range all {
		all[i].name = strings.TrimPrefix(filepath.ToSlash(all[i].dir), "../testdata/")
	}
	return all
}

// refusals are the adapters that are not used, and what is said of them.
var refusals = map[string]struct {
	is   error
	text string
}{
	"peft/init-pissa-niter/adapter": {lora.ErrUnsupported, "pissa_niter"},
}

// TestGoldenAdapters compares every adapter with PEFT: logits, those without
// the adapter where its method changes the base, and greedy tokens through the
// cache. The model that it is merged into gives the same logits.
func TestGoldenAdapters(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, c := range goldenAdapters(t) {
		t.Run(c.name, func(t *testing.T) {
			m := openModel(t, c.model)
			s, err := lora.LoadState(c.dir, m, m.Config.ModelType, m.Modules())
			if r, refused := refusals[c.name]; refused {
				require.ErrorIs(t, err, r.is)
				require.ErrorContains(t, err, r.text)
				return
			}
			require.NoError(t, err)
			f := openFile(t, c.file)
			ids := tokenRows(t, f, "input_ids")
			got := logits(t, dev, m, s, ids)
			requireLogits(t, floats(t, f, "logits"), got, 1e-5)
			if f.Has("residual_logits") {
				// PEFT's SVD is in float32: with the residuals that follow from
				// its own A and B, the difference is 1e-6.
				requireLogits(t, floats(t, f, "residual_logits"), logits(t, dev, residual(t, m, s), nil, ids), 2e-5)
			}
			if f.Has("generated") {
				requireTokens(t, dev, m, s, tokenRows(t, f, "generated")[0])
			}
			a := load(t, c.dir)
			require.NoError(t, a.Check(s.Placement, lora.CheckOptions{}).Err())
			if reason := unmergeable[c.name]; reason != "" {
				_, err := lora.NewMerger(a, s.Placement)
				require.ErrorContains(t, err, reason)
				return
			}
			alone := merged(t, m, a, s.Placement)
			limit := 2e-6
			if testdevice.Backend() != backend.CPU {
				limit = 3e-6 // sums are in other orders
			}
			if strings.HasPrefix(m.Config.ModelType, "gemma") || m.Config.ModelType == "gpt_oss" {
				limit = 6e-6 // norms behind attention and MLP, and the gain of gates, amplify rounding: what PyTorch merges is twice as far off as with others
			}
			require.LessOrEqual(t, relative(got, logits(t, dev, alone, nil, ids)), limit)
			if f.Has("generated") {
				requireTokens(t, dev, alone, nil, tokenRows(t, f, "generated")[0])
			}
		})
	}
}

// requireTokens continues the first 8 tokens greedily: through the cache, and
// without, where each token follows from the text before it.
func requireTokens(t *testing.T, dev backend.Device, m *model.Model, s *lora.State, want []int32) {
	t.Helper()
	g, err := generate.New(context.Background(), dev, m, s, generate.Options{})
	require.NoError(t, err)
	defer g.Close()
	r, err := g.Generate(context.Background(), want[:8], generate.GenerateOptions{MaxNewTokens: len(want) - 8, IgnoreEOS: true}, nil)
	require.NoError(t, err)
	require.Equal(t, want[8:], r.IDs)
	all, vocab := logits(t, dev, m, s, [][]int32{want}), m.Config.VocabSize
	for i := 8; i < len(want); i++ {
		row := all[(i-1)*vocab : i*vocab]
		require.Equal(t, slices.Max(row), row[want[i]], "token %d without a cache", i)
	}
}

// A state keeps the file of its adapter mapped: values that lie in it are
// among them.
func TestStateKeepsItsFile(t *testing.T) {
	m := openModel(t, "../testdata/peft/base/small-llama")
	s, err := lora.LoadState("../testdata/peft/embedding/adapter", m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	require.NotEmpty(t, s.Base)
	for range 3 {
		runtime.GC()
	}
	time.Sleep(10 * time.Millisecond) // cleanups run on their own
	for name, base := range s.Base {
		values, err := base.Float32s()
		require.NoError(t, err, name)
		require.NotZero(t, values[0])
	}
	runtime.KeepAlive(s)
}

// unmergeable are adapters that no weights of the model can hold.
var unmergeable = map[string]string{
	"peft/lora-bias/adapter": `"model.layers.0.self_attn.o_proj" has no bias to merge that of B into`,
	"peft/granite/adapter":   `"lm_head" has no bias to merge that of B into`,
}

func openModel(t testing.TB, dir string) *model.Model {
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func logits(t *testing.T, dev backend.Device, m *model.Model, s *lora.State, rows [][]int32) []float32 {
	scorer, err := generate.NewScorer(dev, m, s, len(rows)*len(rows[0]))
	require.NoError(t, err)
	defer scorer.Close()
	got, err := scorer.Logits(context.Background(), rows)
	require.NoError(t, err)
	return got
}

// requireLogits allows 1e-4, and so much of the largest logit.
func requireLogits(t *testing.T, want, got []float32, limit float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.LessOrEqual(t, math.Abs(float64(want[i])-float64(got[i])), 1e-4, i)
	}
	require.LessOrEqual(t, relative(want, got), limit)
}

// residual is m with the weights that the adapter's method left of its own.
func residual(t *testing.T, m *model.Model, s *lora.State) *model.Model {
	require.NotEmpty(t, s.Base)
	weights := weightsOf(t, m)
	for name, base := range s.Base {
		values, err := base.Float32s()
		require.NoError(t, err)
		weights[name+".weight"] = values
	}
	return rewritten(t, m, weights, false)
}

// merged is m with the adapter in its weights.
func merged(t *testing.T, m *model.Model, a *lora.Adapter, p *lora.Placement) *model.Model {
	merger, err := lora.NewMerger(a, p)
	require.NoError(t, err)
	weights := weightsOf(t, m)
	untied := merger.Untied()
	for _, u := range untied {
		weights[u.Name] = slices.Clone(weights[u.From])
	}
	for name, values := range weights {
		_, err := merger.Merge(name, values, tensor.F32)
		require.NoError(t, err)
	}
	return rewritten(t, m, weights, len(untied) > 0)
}

func weightsOf(t *testing.T, m *model.Model) map[string][]float32 {
	weights := map[string][]float32{}
	for _, name := range m.Used() {
		name = strings.TrimSuffix(name, nn.TransposedSuffix) // merges change what the file has
		w, err := m.Weight(name)
		require.NoError(t, err)
		weights[name], err = tensor.Tensor{DType: w.DType, Shape: w.Shape, Data: w.Source.Bytes}.Float32s()
		require.NoError(t, err)
	}
	return weights
}

// rewritten writes a model like m with other weights, in f32, and opens it.
func rewritten(t *testing.T, m *model.Model, weights map[string][]float32, untie bool) *model.Model {
	dir := t.TempDir()
	var entries []safetensors.Entry
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		w, err := m.Weight(name)
		if err != nil { // a head that was tied
			w, err = m.Weight("model.embed_tokens.weight")
		}
		require.NoError(t, err)
		x, err := tensor.FromFloat32s(weights[name], w.Shape...)
		require.NoError(t, err)
		entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: w.Shape, Data: x.Data})
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	config, err := os.ReadFile(filepath.Join(m.Dir, "config.json"))
	require.NoError(t, err)
	if untie {
		config = []byte(strings.Replace(string(config), `"tie_word_embeddings": true`, `"tie_word_embeddings": false`, 1))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
	return openModel(t, dir)
}

func tokenRows(t *testing.T, f *safetensors.File, name string) [][]int32 {
	v, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[int64](v)
	require.NoError(t, err)
	rows := make([][]int32, v.Shape[0])
	for i := range rows {
		for j := range v.Shape[1] {
			rows[i] = append(rows[i], int32(x[i*v.Shape[1]+j]))
		}
	}
	return rows
}
