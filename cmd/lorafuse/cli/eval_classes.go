package cli

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// classification is the output of `eval --json` for a classifier.
type classification struct {
	Problem  data.Problem `json:"problem"`
	Loss     float64      `json:"loss"`               // a row
	Accuracy *float64     `json:"accuracy,omitempty"` // share of the rows that are right, not of a regression
	Labels   []string     `json:"labels,omitempty"`   // names of the classes
	Rows     int          `json:"rows"`
	Tokens   int          `json:"all_tokens"`
	measurement
}

func (c *classification) text() string {
	text := fmt.Sprintf("loss        %.6f\n", c.Loss)
	if c.Accuracy != nil {
		text += fmt.Sprintf("accuracy    %.6g\n", *c.Accuracy)
	}
	return text + fmt.Sprintf("rows        %d, of %d tokens\n", c.Rows, c.Tokens)
}

// openClasses prepares to measure the loss and the accuracy of a classifier.
func (a *app) openClasses(ctx context.Context, f *evalFlags, r *evalRun) error {
	s := r.session
	classes, err := f.classes(s.model.Config.Classes)
	if err != nil {
		return err
	}
	s.model.Config.Classes = classes
	tok, err := s.model.Tokenizer()
	if err != nil {
		return err
	}
	if r.set, r.rows, err = a.loadRows(ctx, f, classify.DataOptions(s.model.Config, tok, f.length)); err != nil {
		return err
	}
	classifier, err := classify.New(ctx, s.dev, s.model.Model, s.model.State, classify.For(r.rows))
	if err != nil {
		return err
	}
	r.close = func() {
		classifier.Close()
		s.close()
	}
	r.score = func(ctx context.Context, b *data.Batch) (batchScore, error) {
		scores, loss, err := classifier.Score(ctx, b)
		if err != nil {
			return batchScore{}, err
		}
		x := batchScore{loss: loss, count: b.Rows(), right: classes.Right(b, scores)}
		if f.scores != "" {
			x.scores = scores
		}
		return x, nil
	}
	r.result = func(total batchScore, m measurement) (evaluated, error) {
		stats := r.set.Stats()
		c := &classification{Problem: classes.Means(), Loss: total.loss, Rows: stats.Rows, Tokens: stats.Tokens, measurement: m}
		if c.Problem != data.Regression {
			c.Accuracy, c.Labels = new(float64(total.right)/float64(c.Rows)), classes.Names
		}
		a.noteCut(m)
		if f.scores == "" {
			return c, nil
		}
		return c, safetensors.WriteFile(f.scores, []safetensors.Entry{{
			Name: "scores", DType: safetensors.F32, Shape: []int{c.Rows, len(classes.Names)}, Data: tensor.BytesOf(total.scores),
		}}, map[string]string{"format": "pt"})
	}
	return nil
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
