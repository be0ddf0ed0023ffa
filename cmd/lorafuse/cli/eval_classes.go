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

// evalClasses measures the loss and the accuracy of a classifier.
func (a *app) evalClasses(ctx context.Context, f *evalFlags, s *session) (*classification, error) {
	classes, err := f.classes(s.model.Config.Classes)
	if err != nil {
		return nil, err
	}
	s.model.Config.Classes = classes
	tok, err := s.model.Tokenizer()
	if err != nil {
		return nil, err
	}
	set, rows, err := a.loadRows(ctx, f, classify.DataOptions(s.model.Config, tok, f.length))
	if err != nil {
		return nil, err
	}
	classifier, err := classify.New(ctx, s.dev, s.model.Model, s.model.State, classify.For(rows))
	if err != nil {
		return nil, err
	}
	defer classifier.Close()
	stats := set.Stats()
	c := &classification{Problem: classes.Means(), Rows: stats.Rows, Tokens: stats.Tokens}
	right := 0
	var all []float32
	c.Loss, c.measurement, err = a.measure(s, set, rows, func(b *data.Batch) (float64, int, error) {
		scores, loss, err := classifier.Score(ctx, b)
		if err != nil {
			return 0, 0, err
		}
		right += classes.Right(b, scores)
		if f.scores != "" {
			all = append(all, scores...)
		}
		return loss, b.Rows(), nil
	})
	if err != nil {
		return nil, err
	}
	if c.Problem != data.Regression {
		c.Accuracy, c.Labels = new(float64(right)/float64(c.Rows)), classes.Names
	}
	a.noteCut(c.measurement)
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
