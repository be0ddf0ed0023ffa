package train

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
)

// Classification is the task of classifiers: to predict the class or classes of a
// document, or its numbers (regression).
type Classification struct {
	Model *model.Config // of a model.Classifier
	Rows  int           // of a batch, at most
}

// Loss returns the loss of the task.
func (t Classification) Loss() Loss {
	l := LossOf(model.Classification)
	l.Bounds = func(tokens int) map[string]int { return map[string]int{nn.Tokens: tokens, nn.Documents: t.Rows} }
	l.Mark = t.Model.MarkRead
	if t.Model.Classes.Means() != data.Regression {
		l.PerRow, l.Right = len(t.Model.Classes.Names), t.right
		l.Scores = func(b *nn.Builder, out model.Outputs) graph.Tensor { return out.Score(b) }
	}
	return l
}

// right counts the rows whose class is predicted correctly.
func (t Classification) right(b *data.Batch, _, scores []float32) int {
	return t.Model.Classes.Right(b, scores)
}

// readClassified reads the rows, and opens a classifier of their classes.
func (r *Run) readClassified(ctx context.Context, dir string) error {
	m, err := model.ReadConfig(dir)
	if err != nil {
		return err
	}
	classes, err := r.classes(m)
	if err != nil {
		return err
	}
	o := r.cfg.DataOptions()
	o.Classes, o.Problem = classes.Names, classes.Problem
	if classes.Problem == data.Regression {
		o.Classes, classes.Names = nil, model.UnnamedClasses(1).Names
	}
	set, err := r.loadData(ctx, dir, m, o)
	if err != nil {
		return err
	}
	if classes.Problem != data.Regression {
		classes.Names = set.Classes()
	}
	if r.model, err = model.OpenClassifier(dir, classes, r.cfg.Seed); err != nil {
		return err
	}
	r.noteUnread()
	return r.quantize()
}

// classes returns the classes that are known without the rows. They come from the
// configuration, from an adapter that is trained further, or from the model's
// config.json.
func (r *Run) classes(m *model.Config) (classes model.Classes, err error) {
	var saved model.Classes
	if r.cfg.InitAdapter != "" {
		if saved, _, err = model.ReadClasses(r.cfg.InitAdapter); err != nil {
			return classes, err
		}
	}
	given := model.Classes{Names: r.cfg.Classification.Labels}
	if r.cfg.Given("classification.problem") {
		given.Problem = r.cfg.Classification.Problem
	}
	for _, c := range []model.Classes{given, saved, m.Classes} {
		if len(classes.Names) == 0 {
			classes.Names = c.Names
		}
		classes.Problem = cmp.Or(classes.Problem, c.Problem)
	}
	classes.Problem = cmp.Or(classes.Problem, r.cfg.Classification.Problem)
	return classes, nil
}

// pooler is the layer of BERT that its classifiers read.
const pooler = "pooler.dense"

// pooling adds a newly initialized pooler to modules_to_save, so that it is trained and
// saved. With an adapter alone, its random weights would differ at the next load.
func (r *Run) pooling(c *lora.Config) *lora.Config {
	fresh := slices.ContainsFunc(r.model.Fresh(), func(name string) bool { return strings.Contains(name, pooler) })
	if name, _, _ := strings.Cut(pooler, "."); fresh && !slices.Contains(c.ModulesToSave, name) {
		c = c.Clone()
		c.ModulesToSave = append(c.ModulesToSave, name)
		r.observer.note("note     the checkpoint has no pooler: a new one is trained and saved (modules_to_save)")
	}
	return c
}

// describeHead reports the classes, and the parts of the head that are newly
// initialized.
func (r *Run) describeHead() {
	c := r.model.Config.Classes
	if c.Problem == data.Regression {
		r.observer.note("head     %s", c.Problem)
	} else {
		r.observer.note("head     %s, %d classes: %s", c.Problem, len(c.Names), strings.Join(c.Names, ", "))
	}
	if names := r.model.Fresh(); len(names) > 0 {
		r.observer.note("note     new in the model, random numbers of the seed: %s", strings.Join(names, ", "))
	}
}
