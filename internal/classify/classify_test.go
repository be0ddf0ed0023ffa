package classify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// golden is a classifier of testdata/tasks.
type golden struct {
	dir       string
	Base      string
	Problem   data.Problem
	Labels    []string
	FinalLoss float64 `json:"final_loss"`
}

func goldens(t *testing.T) (all []golden) {
	paths, err := filepath.Glob("../../testdata/tasks/classes-*/case.json")
	require.NoError(t, err)
	require.Len(t, paths, 11)
	for _, path := range paths {
		g := golden{dir: filepath.Dir(path)}
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &g))
		all = append(all, g)
	}
	return all
}

func (g golden) base() string { return filepath.Join("../../testdata/encoders", g.Base) }

// score returns the scores of all rows, their mean loss, and the number of correct ones.
func (g golden) score(t *testing.T, m *model.Model, s *lora.State, batch int) (scores []float32, loss float64, right int) {
	words, err := tokenizer.Load(g.base())
	require.NoError(t, err)
	c := m.Config
	o := data.Options{Rows: data.LabelledRows, Problem: g.Problem, Texts: words, Types: c.TokenTypes(), MaxLength: c.MaxLength()}
	if g.Problem != data.Regression {
		o.Classes = g.Labels
	}
	set, err := data.Load(t.Context(), []string{filepath.Join(g.dir, "rows.jsonl")}, o)
	require.NoError(t, err)
	rows, err := data.Sequential(set, batch)
	require.NoError(t, err)
	x, err := classify.New(t.Context(), testdevice.Open(t, backend.Options{}), m, s, classify.Options{MaxTokens: rows.MaxTokens(), MaxDocuments: rows.MaxDocuments()})
	require.NoError(t, err)
	defer x.Close()
	for step := range rows.StepsPerEpoch() {
		b, err := rows.Batch(step, 0)
		require.NoError(t, err)
		part, sum, err := x.Score(t.Context(), b)
		require.NoError(t, err)
		scores, loss, right = append(scores, part...), loss+sum, right+c.Classes.Right(b, part)
	}
	return scores, loss / float64(set.Len()), right
}

// TestScores compares the scores of all rows with PyTorch: for the adapters of both ends of the run, and for the
// checkpoint that PEFT made of the last one.
func TestScores(t *testing.T) {
	for _, g := range goldens(t) {
		f, err := safetensors.Open(filepath.Join(g.dir, "logits.safetensors"))
		require.NoError(t, err)
		defer f.Close()
		want := func(name string) []float32 {
			v, err := f.Lookup(name)
			require.NoError(t, err)
			x, err := safetensors.As[float32](v)
			require.NoError(t, err)
			return x
		}
		for _, end := range []string{"init", "final"} {
			m, err := classify.OpenModel(g.base(), filepath.Join(g.dir, end))
			require.NoError(t, err)
			defer m.Close()
			m.Config.Classes = model.Classes{Names: g.Labels, Problem: g.Problem}
			s, err := lora.LoadState(filepath.Join(g.dir, end), m, m.Config.ModelType, m.Modules())
			require.NoError(t, err)
			scores, loss, _ := g.score(t, m, s, 5)
			requireClose(t, scores, want(end), g.dir+" "+end)
			if end == "final" {
				require.InDelta(t, g.FinalLoss, loss, 1e-5, g.dir)
			}
		}
		m, err := model.Open(filepath.Join(g.dir, "merged"))
		require.NoError(t, err)
		defer m.Close()
		require.Equal(t, model.Classes{Names: g.Labels, Problem: g.Problem}, m.Config.Classes)
		require.Empty(t, m.Fresh())
		scores, loss, right := g.score(t, m, nil, 12)
		requireClose(t, scores, want("final"), g.dir+" merged")
		require.InDelta(t, g.FinalLoss, loss, 1e-5, g.dir)
		require.Equal(t, g.right(t, want("final")), right, g.dir)
	}
}

// right counts the rows that are right, from the file itself.
func (g golden) right(t *testing.T, scores []float32) (n int) {
	raw, err := os.ReadFile(filepath.Join(g.dir, "rows.jsonl"))
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	for k := len(g.Labels); len(scores) > 0; scores = scores[k:] {
		var row struct{ Label any }
		require.NoError(t, d.Decode(&row))
		best, said := 0, []any{}
		for j := range k {
			if scores[j] > scores[best] {
				best = j
			}
			if scores[j] > 0 {
				said = append(said, g.Labels[j])
			}
		}
		switch g.Problem {
		case data.SingleLabel:
			if row.Label == g.Labels[best] {
				n++
			}
		case data.MultiLabel:
			if equal(row.Label.([]any), said) {
				n++
			}
		}
	}
	return n
}

func equal(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// requireClose allows 1e-5 of the largest score.
func requireClose(t *testing.T, got, want []float32, what string) {
	require.Len(t, got, len(want), what)
	diff, size := 0.0, 0.0
	for i := range want {
		diff = math.Max(diff, math.Abs(float64(got[i]-want[i])))
		size = math.Max(size, math.Abs(float64(want[i])))
	}
	require.LessOrEqual(t, diff/size, 1e-5, what)
}

// A model that is not a classifier, and an adapter without a head, are refused.
func TestErrors(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	m, err := model.Open("../../testdata/encoders/bert")
	require.NoError(t, err)
	defer m.Close()
	_, err = classify.New(context.Background(), dev, m, nil, classify.Options{MaxTokens: 8, MaxDocuments: 2})
	require.ErrorIs(t, err, model.ErrTask)
	_, err = classify.New(context.Background(), dev, m, nil, classify.Options{MaxTokens: 8})
	require.ErrorIs(t, err, classify.ErrOption)
	_, err = classify.OpenModel("../../testdata/encoders/bert", "../../testdata/encoders/bert/adapter")
	require.ErrorIs(t, err, lora.ErrMissing)
	require.ErrorContains(t, err, "no weight of a head that classifies")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../testdata/tasks/classes-bert/init")))
	require.NoError(t, model.UnnamedClasses(2).Save(dir))
	_, err = classify.OpenModel("../../testdata/encoders/bert-old", dir)
	require.ErrorIs(t, err, model.ErrConfig)
	require.ErrorContains(t, err, "classes.json: bad config.json: found 2 names, expected 3")
}
