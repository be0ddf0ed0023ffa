package cli

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// classification is the output of `eval --json` for a classifier.
type classification struct {
	Problem         data.Problem `json:"problem"`
	Loss            float64      `json:"loss"`               // a row
	Accuracy        *float64     `json:"accuracy,omitempty"` // share of the rows that are right, not of a regression
	Labels          []string     `json:"labels,omitempty"`   // names of the classes
	Rows            int          `json:"rows"`
	Tokens          int          `json:"all_tokens"`
	Truncated       int          `json:"truncated_rows"`
	Dropped         int          `json:"dropped_rows"`
	Seconds         float64      `json:"seconds"`
	TokensPerSecond float64      `json:"tokens_per_second"`
	// Load describes how the weights were uploaded to a device with its own memory.
	Load *backend.LoadStats `json:"load,omitempty"`
}

func (c *classification) text() string {
	text := fmt.Sprintf("loss        %.6f\n", c.Loss)
	if c.Accuracy != nil {
		text += fmt.Sprintf("accuracy    %.6g\n", *c.Accuracy)
	}
	return text + fmt.Sprintf("rows        %d, of %d tokens\n", c.Rows, c.Tokens)
}

// evalClasses measures the loss and the accuracy of a classifier.
func (a *app) evalClasses(ctx context.Context, f *evalFlags, s *session) (*classification, error) {
	classes, err := f.classes(s.model.Config.Classes)
	if err != nil {
		return nil, err
	}
	s.model.Config.Classes = classes
	set, err := a.loadLabelled(ctx, f, s)
	if err != nil {
		return nil, err
	}
	rows, err := data.Sequential(set, f.batch)
	if err != nil {
		return nil, err
	}
	classifier, err := classify.New(ctx, s.dev, s.model, s.state, classify.Options{MaxTokens: rows.MaxTokens(), MaxDocuments: rows.MaxDocuments()})
	if err != nil {
		return nil, err
	}
	defer classifier.Close()
	stats := set.Stats()
	c := &classification{Problem: classes.Means(), Rows: stats.Rows, Tokens: stats.Tokens, Truncated: stats.Truncated, Dropped: stats.Dropped}
	began, sum, right := time.Now(), 0.0, 0
	var b data.Batch
	var all []float32
	for step := range rows.StepsPerEpoch() {
		if err := rows.Fill(&b, step, 0); err != nil {
			return nil, err
		}
		scores, loss, err := classifier.Score(ctx, &b)
		if err != nil {
			return nil, underWay(err)
		}
		sum, right = sum+loss, right+classes.Right(&b, scores)
		if f.scores != "" {
			all = append(all, scores...)
		}
		a.steps("evaluating", step+1, rows.StepsPerEpoch(), began)
	}
	a.close()
	c.Load = a.loaded(s.dev)
	if c.Loss = sum / float64(c.Rows); math.IsNaN(c.Loss) || math.IsInf(c.Loss, 0) {
		return nil, fmt.Errorf("eval: the loss is %v: %w", c.Loss, train.ErrNotFinite)
	}
	if c.Problem != data.Regression {
		c.Accuracy, c.Labels = new(float64(right)/float64(c.Rows)), classes.Names
	}
	c.Seconds = time.Since(began).Seconds()
	c.TokensPerSecond = float64(c.Tokens) / c.Seconds
	a.noteCut(c.Truncated, c.Dropped)
	if f.scores == "" {
		return c, nil
	}
	return c, safetensors.WriteFile(f.scores, []safetensors.Entry{{
		Name: "scores", DType: safetensors.F32, Shape: []int{c.Rows, len(classes.Names)}, Data: tensor.BytesOf(all),
	}}, map[string]string{"format": "pt"})
}

// classes returns the classes of the model, with the flags' overrides.
func (f *evalFlags) classes(c model.Classes) (model.Classes, error) {
	if n := len(f.labels); n > 0 {
		if n != len(c.Names) {
			return c, fmt.Errorf("eval: --labels: found %d names, expected %d, as the head has classes", n, len(c.Names))
		}
		c.Names = f.labels
	}
	if f.problem != "" {
		c.Problem = f.problem
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("eval: --problem, --labels: %w", err)
	}
	if c.Means() == data.Regression && len(c.Names) != 1 {
		return c, fmt.Errorf("eval: a regression of %d numbers; supported: of one", len(c.Names))
	}
	return c, nil
}

// loadLabelled reads and tokenises the files as a training run of a classifier does.
func (a *app) loadLabelled(ctx context.Context, f *evalFlags, s *session) (*data.Dataset, error) {
	t, err := s.tokenizer()
	if err != nil {
		return nil, err
	}
	c := s.model.Config
	o := data.Options{
		Rows: data.LabelledRows, Problem: c.Classes.Means(), Texts: t, Types: c.TokenTypes(), VocabSize: c.VocabSize,
		Format: f.format, MaxLength: min(f.length, c.MaxLength()), OnTooLong: f.tooLong,
	}
	if o.Problem != data.Regression {
		o.Classes = c.Classes.Names
	}
	report := a.loading()
	o.Progress = func(p data.Progress) { report("reading data", p.Bytes, p.Size) }
	return data.Load(ctx, f.files, o)
}
