package model_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
)

var threeClasses = model.Classes{Names: []string{"a", "b", "c"}, Problem: data.SingleLabel}

// A head that the checkpoint has not begins as in transformers, by the seed; what it has
// is found under the names of a model with a head.
func TestFreshHead(t *testing.T) {
	for dir, want := range map[string][]string{
		"bert":        {"classifier.bias", "classifier.weight"},
		"bert-head":   {"bert.pooler.dense.bias", "bert.pooler.dense.weight", "classifier.bias", "classifier.weight"},
		"bert-old":    {"classifier.bias", "classifier.weight"},
		"xlm-roberta": {"classifier.dense.bias", "classifier.dense.weight", "classifier.out_proj.bias", "classifier.out_proj.weight"},
		"mpnet":       {"classifier.dense.bias", "classifier.dense.weight", "classifier.out_proj.bias", "classifier.out_proj.weight"},
		"llama":       {"score.weight"},
	} {
		values := func(seed uint64) map[string][]float32 {
			m, err := model.OpenClassifier(filepath.Join("../../testdata/encoders", dir), threeClasses, seed)
			require.NoError(t, err)
			defer m.Close()
			require.Equal(t, want, m.Fresh(), dir)
			require.Equal(t, model.Classifier, m.Config.Part)
			all := map[string][]float32{}
			for _, name := range m.Fresh() {
				require.True(t, m.Has(name))
				require.Empty(t, m.Stored(name))
				require.Contains(t, m.Used(), name)
				w, err := m.Weight(name)
				require.NoError(t, err)
				all[name], err = w.Float32s()
				require.NoError(t, err)
			}
			for _, name := range m.Used() {
				_, err := m.Weight(name)
				require.NoError(t, err)
			}
			require.NoError(t, m.Quantize(quant.Int8, nil))
			w, err := m.Weight(want[len(want)-1])
			require.NoError(t, err)
			require.False(t, w.DType.Quantized(), "the head stays as it is")
			return all
		}
		one, two := values(1), values(2)
		require.Equal(t, one, values(1))
		for name, x := range one {
			sum, squares := 0.0, 0.0
			for _, v := range x {
				sum, squares = sum+float64(v), squares+float64(v)*float64(v)
			}
			n := float64(len(x))
			if filepath.Ext(name) == ".bias" {
				require.Zero(t, squares, name)
				continue
			}
			require.NotEqual(t, two[name], x)
			require.InDelta(t, 0, sum/n, 4*0.25/math.Sqrt(n), name)
			require.InDelta(t, 0.25, math.Sqrt(squares/n), 4*0.25/math.Sqrt(2*n), name) // initializer_range of the goldens
		}
	}
}

// Every decoder gets a score, in the place of its language head.
func TestDecoderHeads(t *testing.T) {
	for _, dir := range []string{"lm/llama/model", "lm/mistral/model", "lm/qwen2/model", "lm/qwen3/model", "lm/gemma3/model", "extra/mixtral", "extra/qwen3-moe", "extra/gemma", "extra/ministral3", "extra/gemma3-whole"} {
		m, err := model.OpenClassifier("../../testdata/"+dir, threeClasses, 1)
		require.NoError(t, err)
		require.Equal(t, []string{"score.weight"}, m.Fresh(), dir)
		require.NotContains(t, m.Used(), "lm_head.weight")
		require.Regexp(t, "ForSequenceClassification$", m.Config.ClassifierArchitecture())
		require.NoError(t, m.Close())
	}
}

func TestClassifierOfCheckpoint(t *testing.T) {
	const dir = "../../testdata/tasks/classes-xlm-roberta/merged"
	m, err := model.Open(dir)
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, model.Classifier, m.Config.Part)
	require.Equal(t, model.Classes{Names: []string{"animal", "place", "number", "rest"}, Problem: data.MultiLabel}, m.Config.Classes)
	body, err := model.OpenAs(dir, model.Body)
	require.NoError(t, err)
	defer body.Close()
	require.NotContains(t, body.Used(), "classifier.out_proj.weight")
	_, err = model.OpenClassifier(dir, threeClasses, 1)
	require.ErrorIs(t, err, nn.ErrShape)
	require.ErrorContains(t, err, "the head of the checkpoint (classifier.out_proj) has 4 classes, expected 3")
	same, err := model.OpenClassifier(dir, model.UnnamedClasses(4), 1)
	require.NoError(t, err)
	defer same.Close()
	require.Empty(t, same.Fresh())
}

// A body of a checkpoint with a head has the names of a body.
func TestBodyOfLanguageModel(t *testing.T) {
	m, err := model.OpenAs("../../testdata/lm/llama/model", model.Body)
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, model.Body, m.Config.Part)
	require.Equal(t, "embed_tokens", m.Modules()[0].Name)
	require.NotContains(t, m.Used(), "lm_head.weight")
}

// Encoders read a document at its first token, decoders at its last that is no padding.
func TestMarkRead(t *testing.T) {
	read := func(c *model.Config, documents ...[]int32) []int32 {
		b := &data.Batch{}
		for _, d := range documents {
			b.Add(d, nil)
		}
		c.MarkRead(b)
		for _, a := range b.Arrays() {
			if a.Name == nn.ReadToken {
				return a.Ints
			}
		}
		return nil
	}
	documents := [][]int32{{5, 6, 7}, {5, 1, 6, 1, 1}, {1, 1}, {8}}
	for _, c := range []struct {
		dir     string
		padding int
		want    []int32
	}{
		{"bert", 0, []int32{0, 3, 8, 10}},
		{"llama", 1, []int32{2, 5, 8, 10}},
		{"llama", -1, []int32{2, 7, 9, 10}},
	} {
		m, err := model.ReadConfig(filepath.Join("../../testdata/encoders", c.dir))
		require.NoError(t, err)
		m.Padding = c.padding
		require.Equal(t, c.want, read(m, documents...), c)
	}
}

func TestClasses(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/tasks/classes-bert/merged/config.json")
	require.NoError(t, err)
	for _, c := range []struct {
		changes map[string]any
		kind    error
		says    string
	}{
		{map[string]any{"id2label": map[string]any{"0": "a", "2": "b"}}, model.ErrConfig, `id2label: found "2", expected numbers from 0 to 1`},
		{map[string]any{"id2label": map[string]any{"00": "a", "1": "b"}}, model.ErrConfig, `id2label: found "00"`},
		{map[string]any{"id2label": map[string]any{"0": "a", "1": "a"}}, model.ErrConfig, `found the name "a" twice`},
		{map[string]any{"id2label": map[string]any{}}, model.ErrConfig, "found 0 classes"},
		{map[string]any{"id2label": 3}, model.ErrConfig, "id2label"},
		{map[string]any{"problem_type": "multi_label"}, model.ErrUnsupported, `problem_type "multi_label"`},
		{map[string]any{"id2label": map[string]any{"0": "a"}}, model.ErrConfig, "of one class"},
		{map[string]any{"initializer_range": -0.1}, model.ErrConfig, "initializer_range: found -0.1"},
		{map[string]any{"id2label": nil, "num_labels": 0}, model.ErrConfig, "num_labels: found 0"},
	} {
		_, err := model.ParseConfig(changed(t, raw, c.changes))
		require.ErrorIs(t, err, c.kind, c.says)
		require.ErrorContains(t, err, c.says)
	}
	for want, changes := range map[string]map[string]any{
		"LABEL_0 LABEL_1":         {"id2label": nil, "label2id": nil},
		"LABEL_0 LABEL_1 LABEL_2": {"id2label": nil, "label2id": nil, "num_labels": 3},
	} {
		c, err := model.ParseConfig(changed(t, raw, changes))
		require.NoError(t, err)
		require.True(t, c.Classes.Unnamed())
		require.Equal(t, want, joined(c.Classes.Names))
	}
	for n, want := range map[int]data.Problem{1: data.Regression, 2: data.SingleLabel} {
		require.Equal(t, want, model.UnnamedClasses(n).Means())
	}
	// Of a model without such a head only names count that somebody gave.
	base, err := os.ReadFile("../../testdata/encoders/bert/config.json")
	require.NoError(t, err)
	for want, labels := range map[string]map[string]any{"": {"0": "LABEL_0"}, "x y": {"0": "x", "1": "y"}} {
		c, err := model.ParseConfig(changed(t, base, map[string]any{"id2label": labels}))
		require.NoError(t, err)
		require.Equal(t, want, joined(c.Classes.Names))
	}
}

func joined(names []string) (s string) {
	for i, n := range names {
		if i > 0 {
			s += " "
		}
		s += n
	}
	return s
}

func TestClassesFile(t *testing.T) {
	dir := t.TempDir()
	_, found, err := model.ReadClasses(dir)
	require.NoError(t, err)
	require.False(t, found)
	c := model.Classes{Names: []string{"näher\"", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"}, Problem: data.MultiLabel}
	require.NoError(t, c.Save(dir))
	back, found, err := model.ReadClasses(dir)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, c, back)
	require.NoError(t, os.WriteFile(filepath.Join(dir, model.ClassesFile), []byte("[]"), 0o666))
	_, _, err = model.ReadClasses(dir)
	require.ErrorIs(t, err, model.ErrConfig)
}

func TestRight(t *testing.T) {
	b := &data.Batch{}
	for range 3 {
		b.Add([]int32{1}, nil)
	}
	b.SetInts(nn.Classes, []int32{1, 0, 2})
	b.SetFloats(nn.Values, []float32{1, 0, 1, 0, 0, 0, 0, 1, 0})
	scores := []float32{-1, 3, 2, -5, -4, -3, 0, 1, 1.5}
	c := threeClasses
	require.Equal(t, 2, c.Right(b, scores))
	c.Problem = data.MultiLabel
	require.Equal(t, 1, c.Right(b, scores))
	c.Problem = data.Regression
	require.Zero(t, c.Right(b, scores))
}
