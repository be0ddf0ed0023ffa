package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// golden is a model and what PyTorch computed with it.
type golden struct{ name, dir, file string }

// goldens are all models in the test data, with each spelling of their config.
func goldens(t *testing.T) []golden {
	var all []golden
	add := func(name, dir, file string) { all = append(all, golden{name, dir, file}) }
	for _, arch := range []string{"llama", "mistral", "qwen2", "qwen3", "gemma3"} {
		dir := filepath.Join("../../testdata/lm", arch)
		file := filepath.Join(dir, "golden.safetensors")
		base := filepath.Join(dir, "model")
		add(arch, base, file)
		add(arch+"/transformers4", respelled(t, base, filepath.Join(base, "config.transformers4.json")), file)
	}
	llama := "../../testdata/lm/llama"
	add("llama/bf16", filepath.Join(llama, "model-bf16"), filepath.Join(llama, "golden-bf16.safetensors"))
	add("qwen2/sharded", "../../testdata/lm/qwen2/model-sharded", "../../testdata/lm/qwen2/golden.safetensors")
	ropes, err := filepath.Glob(filepath.Join(llama, "rope-*"))
	require.NoError(t, err)
	require.Len(t, ropes, 4)
	for _, dir := range ropes {
		add("llama/"+filepath.Base(dir), respelled(t, filepath.Join(llama, "model"), filepath.Join(dir, "config.json")), filepath.Join(dir, "golden.safetensors"))
	}
	extra, err := filepath.Glob("../../testdata/extra/*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, extra)
	for _, config := range extra {
		dir := filepath.Dir(config)
		name, file := "extra/"+filepath.Base(dir), filepath.Join(dir, "golden.safetensors")
		add(name, dir, file)
		others, err := filepath.Glob(filepath.Join(dir, "config.transformers*.json"))
		require.NoError(t, err)
		require.Len(t, others, 1)
		add(name+"/"+strings.TrimSuffix(strings.TrimPrefix(filepath.Base(others[0]), "config."), ".json"), respelled(t, dir, others[0]), file)
	}
	linear := "../../testdata/extra/linear"
	add("torch", respelled(t, "testdata/torch", filepath.Join(linear, "config.json")), filepath.Join(linear, "golden.safetensors"))
	return all
}

// A checkpoint of torch.save has the weights of the safetensors one, in place
// where they lie in order.
func TestTorchWeights(t *testing.T) {
	linear := "../../testdata/extra/linear"
	want, err := model.Open(linear)
	require.NoError(t, err)
	defer want.Close()
	require.Equal(t, weights.Source{Path: filepath.Join(linear, safetensors.ModelFile), Format: "safetensors"}, want.Source)
	dir := respelled(t, "testdata/torch", filepath.Join(linear, "config.json"))
	got, err := model.Open(dir)
	require.NoError(t, err)
	defer got.Close()
	require.True(t, got.Source.Fallback)
	require.Equal(t, filepath.Join(dir, weights.TorchModelIndex), got.Source.Path)
	require.Equal(t, want.Parameters(), got.Parameters())
	gathered := 0
	for _, name := range want.Used() {
		w, err := want.Weight(name)
		require.NoError(t, err)
		g, err := got.Weight(name)
		require.NoError(t, err)
		require.Equal(t, w.Shape, g.Shape)
		require.Equal(t, w.Source.Bytes, g.Source.Bytes, name)
		again, err := got.Weight(name)
		require.NoError(t, err)
		require.Same(t, unsafe.SliceData(g.Source.Bytes), unsafe.SliceData(again.Source.Bytes), "read once")
		if v := g.Source.Keep.(*safetensors.View); !v.InPlace() {
			gathered++
		}
	}
	require.Equal(t, 1, gathered)
}

// respelled is a folder with the files of dir, but for folders, and another config.json.
func respelled(t *testing.T, dir, config string) string {
	to := t.TempDir()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		if f.IsDir() || strings.HasPrefix(f.Name(), "config.") {
			continue
		}
		copyFile(t, filepath.Join(to, f.Name()), filepath.Join(dir, f.Name()))
	}
	copyFile(t, filepath.Join(to, "config.json"), config)
	return to
}

func copyFile(t *testing.T, to, from string) {
	raw, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, raw, 0o644))
}

// TestGoldens compares every model with PyTorch: logits, hidden states, loss,
// right padding, and greedy tokens through the cache.
func TestGoldens(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, c := range goldens(t) {
		t.Run(c.name, func(t *testing.T) {
			m, f, ids, s := c.open(t, dev)
			checkLogits(t, s, ids, floats(t, f, "logits"))
			if f.Has("hidden.0") {
				checkHidden(t, s, ids, f)
			}
			if f.Has("loss") {
				checkLoss(t, s, "loss", ids, f)
			} else {
				checkLossOfLogits(t, s, ids, floats(t, f, "logits"))
			}
			if f.Has("padded.loss") {
				checkPadded(t, s, ids, f)
			}
			if f.Has("generated") {
				checkGenerated(t, dev, m, f)
			}
			if f.Has("crossing") {
				checkCrossing(t, dev, m, f)
			}
		})
	}
}

// TestBodies: a folder of a body alone, as the checkpoints of embedding models are.
func TestBodies(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for arch, body := range map[string]string{"llama": "LlamaModel", "mistral": "MistralModel", "qwen2": "Qwen2Model", "qwen3": "Qwen3Model", "gemma3": "Gemma3TextModel"} {
		dir := filepath.Join("../../testdata/lm", arch)
		raw, err := os.ReadFile(filepath.Join(dir, "model", "config.json"))
		require.NoError(t, err)
		config := map[string]any{}
		require.NoError(t, json.Unmarshal(raw, &config))
		config["architectures"] = []string{body}
		raw, err = json.Marshal(config)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(file, raw, 0o644))
		m, f, ids, s := golden{dir: respelled(t, filepath.Join(dir, "model"), file), file: filepath.Join(dir, "golden.safetensors")}.open(t, dev)
		require.Equal(t, model.Body, m.Config.Part, body)
		checkHidden(t, s, ids, f)
	}
}

// open gives the model, the file of what PyTorch computed, the ids it was given,
// and a scorer for as many.
func (c golden) open(t *testing.T, dev backend.Device) (*model.Model, *safetensors.File, [][]int32, *generate.Scorer) {
	m, err := model.Open(c.dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	f, err := safetensors.Open(c.file)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	ids := intRows(t, f, "input_ids")
	s, err := generate.NewScorer(dev, m, nil, len(ids)*len(ids[0]))
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return m, f, ids, s
}

func checkLogits(t *testing.T, s *generate.Scorer, ids [][]int32, want []float32) {
	got, err := s.Logits(context.Background(), ids)
	require.NoError(t, err)
	requireClose(t, "logits", got, want)
}

func checkHidden(t *testing.T, s *generate.Scorer, ids [][]int32, f *safetensors.File) {
	got, err := s.Hidden(context.Background(), ids)
	require.NoError(t, err)
	for i, h := range got {
		name := fmt.Sprintf("hidden.%d", i)
		requireClose(t, name, h, floats(t, f, name))
	}
	require.False(t, f.Has(fmt.Sprintf("hidden.%d", len(got))), "a hidden state is missing")
}

// checkLoss compares the mean over all tokens but the first of each row.
func checkLoss(t *testing.T, s *generate.Scorer, name string, rows [][]int32, f *safetensors.File) {
	var b data.Batch
	for _, ids := range rows {
		b.Add(ids, append(slices.Clone(ids[1:]), data.Ignore))
	}
	sum, err := s.Loss(context.Background(), &b)
	require.NoError(t, err)
	require.InEpsilon(t, floats(t, f, name)[0], sum/float64(b.LossTokens), 2e-6, name)
}

// checkPadded leaves the padding out: what PyTorch masks does not exist here.
// A row's logits do not depend on the padding or on the length of the others.
func checkPadded(t *testing.T, s *generate.Scorer, whole [][]int32, f *safetensors.File) {
	ids, mask := intRows(t, f, "padded.input_ids"), intRows(t, f, "padded.attention_mask")
	all, err := s.Logits(context.Background(), whole)
	require.NoError(t, err)
	vocab := len(all) / (len(whole) * len(whole[0]))
	cut := 0
	for i := range ids {
		n := 0
		for n < len(mask[i]) && mask[i][n] == 1 {
			n++
		}
		if ids[i] = ids[i][:n]; n < len(mask[i]) {
			cut++
		}
	}
	require.NotZero(t, cut, "no row is padded")
	checkLoss(t, s, "padded.loss", ids, f)
	got, err := s.Logits(context.Background(), ids)
	require.NoError(t, err)
	for i, row := range ids {
		require.Equal(t, whole[i][:len(row)], row)
		from := i * len(whole[0]) * vocab
		requireClose(t, "padded logits", got[:len(row)*vocab], all[from:from+len(row)*vocab])
		got = got[len(row)*vocab:]
	}
}

// checkGenerated continues the first 8 tokens greedily, through the cache. Without
// it each token follows from the text before it, all of which one run computes.
func checkGenerated(t *testing.T, dev backend.Device, m *model.Model, f *safetensors.File) {
	want := intRows(t, f, "generated")[0]
	g, err := generate.New(context.Background(), dev, m, nil, generate.Options{})
	require.NoError(t, err)
	defer g.Close()
	r, err := g.Generate(context.Background(), want[:8], generate.GenerateOptions{MaxNewTokens: len(want) - 8, IgnoreEOS: true}, nil)
	require.NoError(t, err)
	require.Equal(t, want[8:], r.IDs)

	s, err := generate.NewScorer(dev, m, nil, len(want))
	require.NoError(t, err)
	defer s.Close()
	logits, err := s.Logits(context.Background(), [][]int32{want})
	require.NoError(t, err)
	for i := 8; i < len(want); i++ {
		require.Equal(t, int(want[i]), largest(logits[(i-1)*m.Config.VocabSize:i*m.Config.VocabSize]), "token %d without a cache", i)
	}
}

// checkCrossing continues a text beyond the length at which rotary frequencies change. The
// tokens before are then read again.
func checkCrossing(t *testing.T, dev backend.Device, m *model.Model, f *safetensors.File) {
	want := intRows(t, f, "crossing")[0]
	g, err := generate.New(context.Background(), dev, m, nil, generate.Options{})
	require.NoError(t, err)
	defer g.Close()
	for range 2 { // the second time the cache holds the longer text
		r, err := g.Generate(context.Background(), want[:len(want)-8], generate.GenerateOptions{MaxNewTokens: 8, IgnoreEOS: true}, nil)
		require.NoError(t, err)
		require.Equal(t, want[len(want)-8:], r.IDs)
	}
}

// largest is the place of the largest value.
func largest(x []float32) (at int) {
	for i := range x {
		if x[i] > x[at] {
			at = i
		}
	}
	return at
}

// checkLossOfLogits compares the loss with that of PyTorch's logits, in float64.
func checkLossOfLogits(t *testing.T, s *generate.Scorer, ids [][]int32, logits []float32) {
	var b data.Batch
	want, vocab := 0.0, len(logits)/len(ids)/len(ids[0])
	for _, row := range ids {
		b.Add(row, append(slices.Clone(row[1:]), data.Ignore))
		for _, next := range row[1:] {
			sum := 0.0
			for _, x := range logits[:vocab] {
				sum += math.Exp(float64(x))
			}
			want += math.Log(sum) - float64(logits[next])
			logits = logits[vocab:]
		}
		logits = logits[vocab:]
	}
	got, err := s.Loss(context.Background(), &b)
	require.NoError(t, err)
	require.InEpsilon(t, want, got, 1e-5)
}

// requireClose allows 1e-4, and 1e-5 of the largest value.
func requireClose(t *testing.T, what string, got, want []float32) {
	t.Helper()
	require.Len(t, got, len(want), what)
	diff, size := 0.0, 0.0
	for i := range want {
		diff = math.Max(diff, math.Abs(float64(got[i])-float64(want[i])))
		size = math.Max(size, math.Abs(float64(want[i])))
	}
	require.LessOrEqual(t, diff, 1e-4, "%s: largest value %v", what, size)
	require.LessOrEqual(t, diff/size, 1e-5, "%s: relative to %v", what, size)
}

func intRows(t *testing.T, f *safetensors.File, name string) [][]int32 {
	t.Helper()
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

func floats(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	v, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[float32](v)
	require.NoError(t, err)
	return x
}
