package train_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/task/text"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// beginClassifier is begin for a classifier.
func (c taskCase) beginClassifier(t *testing.T) (*train.Engine, *data.Loader) {
	dir := filepath.Join("../../testdata/encoders", c.Base)
	m, err := model.OpenClassifier(dir, model.Classes{Names: c.Labels, Problem: c.Problem}, 1)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	s, err := lora.LoadState(filepath.Join(c.dir, "init"), m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	words, err := tokenizer.Load(dir)
	require.NoError(t, err)
	o := data.Options{Rows: data.LabelledRows, Problem: c.Problem, Texts: words, MaxLength: m.Config.MaxLength()}
	if c.Problem != data.Regression {
		o.Classes = c.Labels
	}
	set, err := data.Load(context.Background(), []string{filepath.Join(c.dir, "rows.jsonl")}, o)
	require.NoError(t, err)
	l, err := data.NewLoader(set, data.LoaderConfig{BatchSize: c.BatchSize, Accumulation: c.Accumulation})
	require.NoError(t, err)
	e, err := train.NewEngine(context.Background(), testdevice.Open(t, backend.Options{}), m, s, train.EngineOptions{
		Loss: text.ClassificationLoss(m.Config, c.BatchSize), MaxTokens: l.MaxTokens(), Adam: trainer.Adam{Beta1: c.Betas[0], Beta2: c.Betas[1], Eps: c.Eps},
	})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e, l
}

// classified is a run that trains a new head, with evaluations that may end it.
func classified(t *testing.T, dir, base, rows string, sets ...string) *config.Config {
	path, err := filepath.Abs("../../testdata/encoders/" + base)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o777))
	file := filepath.Join(dir, "rows.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(rows), 0o666))
	yaml := fmt.Sprintf(`
model: %s
output_dir: %s
task: classification
adapter: {r: 3, target_modules: all-linear, lora_dropout: 0.1}
data: {train: %s, eval: %s}
batch_size: 2
gradient_accumulation_steps: 2
steps: 12
learning_rate: 0.01
eval_steps: 3
eval_at_start: true
save_steps: 2
early_stopping: {patience: 3}
log: {plot: false, steps: 1}
`, path, filepath.Join(dir, "out"), file, file)
	file = filepath.Join(dir, "train.yaml")
	require.NoError(t, os.WriteFile(file, []byte(yaml), 0o666))
	c, err := config.Load(file, sets...)
	require.NoError(t, err)
	return c
}

// labelled are rows of two classes that a word tells apart.
func labelled(pair bool) string {
	var rows strings.Builder
	for i := range 10 {
		second := ""
		if pair {
			second = fmt.Sprintf(`, "text_pair": "the lazy dog %d"`, i)
		}
		fmt.Fprintf(&rows, `{"text": "the %s, number %d"%s, "label": %q}`+"\n", []string{"cat", "station"}[i%2], i, second, []string{"animal", "place"}[i%2])
	}
	return rows.String()
}

// A run that was interrupted and gone on with gives the bytes of one that was not: head,
// evaluations and classes too. What it has learned is right.
func TestResumeClassifier(t *testing.T) {
	for base, pair := range map[string]bool{"bert": true, "xlm-roberta": false, "llama": false} {
		t.Run(base, func(t *testing.T) {
			dir := t.TempDir()
			finish := func(c *config.Config) *train.Summary {
				r, err := train.New(t.Context(), c, train.Observer{})
				require.NoError(t, err)
				defer r.Close()
				s, err := r.Train(t.Context())
				require.NoError(t, err)
				return s
			}
			whole := classified(t, filepath.Join(dir, "whole"), base, labelled(pair))
			s := finish(whole)
			require.Equal(t, 1.0, *s.Accuracy)
			require.Less(t, *s.LastEval, *s.FirstEval)

			cut := classified(t, filepath.Join(dir, "cut"), base, labelled(pair))
			ctx, stop := context.WithCancelCause(t.Context())
			r, err := train.New(ctx, cut, train.Observer{Step: func(p train.Report) {
				if p.Step == 6 {
					stop(errors.New("enough"))
				}
			}})
			require.NoError(t, err)
			_, err = r.Train(ctx)
			require.ErrorIs(t, err, train.ErrInterrupted)
			r.Close()
			cut.Resume = "latest"
			again := finish(cut)
			require.Equal(t, *s.Accuracy, *again.Accuracy)
			require.Equal(t, *s.LastEval, *again.LastEval)
			require.Equal(t, adapterHash(t, whole.OutputDir, train.AdapterDir), adapterHash(t, cut.OutputDir, train.AdapterDir))
			classes, found, err := model.ReadClasses(filepath.Join(cut.OutputDir, train.AdapterDir))
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, model.Classes{Names: []string{"animal", "place"}, Problem: data.SingleLabel}, classes)

			// Another seed begins with another head.
			cut.Seed++
			_, err = train.New(t.Context(), cut, train.Observer{})
			require.ErrorIs(t, err, train.ErrCheckpoint)
			require.ErrorContains(t, err, "seed was 42, is now 43")
		})
	}
}

// What is recorded of evaluations has the accuracy; that of a regression has none.
func TestClassifierMetrics(t *testing.T) {
	for problem, has := range map[data.Problem]bool{data.SingleLabel: true, data.MultiLabel: true, data.Regression: false} {
		rows := labelled(false)
		switch problem {
		case data.MultiLabel:
			rows = strings.NewReplacer(`"animal"`, `["animal", "rest"]`, `"place"`, `[]`).Replace(rows)
		case data.Regression:
			rows = strings.NewReplacer(`"animal"`, `1.5`, `"place"`, `-2`).Replace(rows)
		}
		c := classified(t, t.TempDir(), "mpnet", rows, "classification.problem="+string(problem), "adapter.lora_dropout=0", "schedule=constant", "steps=30", "eval_steps=10")
		r, err := train.New(t.Context(), c, train.Observer{})
		require.NoError(t, err)
		s, err := r.Train(t.Context())
		r.Close()
		require.NoError(t, err)
		require.Less(t, *s.LastEval, *s.FirstEval/2, problem)
		records, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
		require.NoError(t, err)
		first, found := records[0].Value(events.EvalAccuracy)
		last, _ := records[len(records)-1].Value(events.EvalAccuracy)
		require.Equal(t, has, found, problem)
		require.Equal(t, has, s.Accuracy != nil, problem)
		if has {
			require.Less(t, first, last, problem)
			require.Equal(t, *s.Accuracy, last)
		}
	}
}

// A pooler that is new is saved with the adapter, as it would be lost otherwise.
func TestFreshPooler(t *testing.T) {
	var notes []string
	c := classified(t, t.TempDir(), "bert-head", labelled(true))
	r, err := train.New(t.Context(), c, train.Observer{Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, err)
	s, err := r.Train(t.Context())
	r.Close()
	require.NoError(t, err)
	require.Contains(t, strings.Join(notes, "\n"), "the checkpoint has no pooler")
	a, err := lora.Load(s.Adapter)
	require.NoError(t, err)
	defer a.Close()
	require.Contains(t, a.Names(), "base_model.model.bert.pooler.dense.weight")
	require.Contains(t, a.Names(), "base_model.model.classifier.bias")
	require.Equal(t, []string{"pooler", "classifier", "score"}, a.Config.ModulesToSave)
	require.Equal(t, "SEQ_CLS", *a.Config.TaskType)
}

func TestClassifierErrors(t *testing.T) {
	for says, set := range map[string]string{
		`label: found "place", expected "animal"`: "classification.labels=[animal, thing]",
		"found 1 classes in all rows":             "data.train=" + write(t, `{"text": "a", "label": "x"}`+"\n"),
	} {
		c := classified(t, t.TempDir(), "bert", labelled(false), set)
		_, err := train.New(t.Context(), c, train.Observer{})
		require.ErrorContains(t, err, says)
	}
}

// The bias by relative positions of MPNet is used as it is, and never trained.
func TestRelativeBiasIsNotTrained(t *testing.T) {
	for _, set := range []string{"adapter.modules_to_save=relative_attention_bias", "adapter.target_modules=[q, relative_attention_bias]"} {
		c := classified(t, t.TempDir(), "mpnet", labelled(false), set)
		_, err := train.New(t.Context(), c, train.Observer{})
		require.ErrorIs(t, err, model.ErrUnsupported, set)
		require.ErrorContains(t, err, "training of relative_attention_bias", set)
	}
}

// A classifier does not learn to continue texts.
func TestTaskOfAnotherModel(t *testing.T) {
	c := classified(t, t.TempDir(), "bert", labelled(false), "task=language", "data.train="+write(t, `{"text": "a"}`+"\n"))
	_, err := train.New(t.Context(), c, train.Observer{})
	require.ErrorIs(t, err, model.ErrTask)
	require.ErrorContains(t, err, `train: task: language: model: `)
	require.ErrorContains(t, err, `BertModel: the architecture does not have it: the task "next token"; it has none`)
}

// write writes a file of rows.
func write(t *testing.T, rows string) string {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(rows), 0o666))
	return path
}
