package text

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

func init() {
	train.Register(config.TaskClassification, train.Task{Open: classification, Try: train.TryWith("eval", "--data rows.jsonl"), Card: train.Card{
		Pipeline: "text-classification", Library: "transformers", Python: `from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained({base}, num_labels={classes}, dtype="auto")
model = PeftModel.from_pretrained(model, {adapter})
tokenizer = AutoTokenizer.from_pretrained({base})
`}})
}

// ClassificationLoss returns the loss of a classifier, which predicts the class or classes of a
// document, or its numbers (regression). A batch has at most the given number of rows.
func ClassificationLoss(m *model.Config, rows int) trainer.Loss {
	l := trainer.LossOf(model.Classification)
	l.Bounds = func(tokens int) map[string]int { return map[string]int{nn.Tokens: tokens, nn.Documents: rows} }
	l.Mark = m.MarkRead
	if m.Classes.Means() != data.Regression {
		l.PerRow = len(m.Classes.Names)
		l.Right = func(b *data.Batch, _, scores []float32) int { return m.Classes.Right(b, scores) }
		l.Scores = func(b *nn.Builder, out model.Outputs) graph.Tensor { return out.Score(b) }
	}
	return l
}

// classification opens a run on rows with labels. It reads the rows before the model, since
// they may determine the number of classes.
func classification(ctx context.Context, s *train.Setup) (*train.Material, error) {
	t, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	read, err := model.ReadConfig(t.dir)
	if err != nil {
		return nil, err
	}
	classes, err := t.classes(read)
	if err != nil {
		return nil, err
	}
	o := t.cfg.DataOptions()
	o.Classes, o.Problem = classes.Names, classes.Problem
	if classes.Problem == data.Regression {
		o.Classes, classes.Names = nil, model.UnnamedClasses(1).Names
	}
	err = t.load(ctx, read, o, func(o *data.Options, tok *tokenizer.Tokenizer) error {
		o.Texts, o.Types, o.MaxLength = tok, read.TokenTypes(), min(o.MaxLength, read.MaxLength())
		return nil
	})
	if err != nil {
		return nil, err
	}
	if classes.Problem != data.Regression {
		classes.Names = t.set.Classes()
	}
	m, err := model.OpenClassifier(t.dir, classes, t.cfg.Seed)
	if err != nil {
		return nil, err
	}
	if err := s.UseModel(m); err != nil {
		return nil, err
	}
	classes = m.Config.Classes
	t.setting("classification.labels", fmt.Sprintf("%q", classes.Names))
	t.setting("classification.problem", classes.Problem)
	t.setting("config.json initializer_range", m.Config.Deviation)
	return t.material(func(t *texts, out *train.Material) error {
		out.Loss = ClassificationLoss(m.Config, t.documents)
		out.ModelNotes = headNotes(m)
		out.Targets = func(c *lora.Config) *lora.Config { return t.saveHeads(m, c) }
		out.Save = func(dir string) error {
			if err := t.copyFiles(dir); err != nil {
				return err
			}
			return classes.Save(dir)
		}
		return nil
	})
}

// classes returns the classes that are known without the rows. They come from the
// configuration, from an adapter that is trained further, or from the model's
// config.json.
func (t *texts) classes(m *model.Config) (classes model.Classes, err error) {
	var saved model.Classes
	if t.cfg.InitAdapter != "" {
		if saved, _, err = model.ReadClasses(t.cfg.InitAdapter); err != nil {
			return classes, err
		}
	}
	given := model.Classes{Names: t.cfg.Classification.Labels}
	if t.cfg.Given("classification.problem") {
		given.Problem = t.cfg.Classification.Problem
	}
	for _, c := range []model.Classes{given, saved, m.Classes} {
		if len(classes.Names) == 0 {
			classes.Names = c.Names
		}
		classes.Problem = cmp.Or(classes.Problem, c.Problem)
	}
	classes.Problem = cmp.Or(classes.Problem, t.cfg.Classification.Problem)
	return classes, nil
}

// unsavedHeads are the parts of classification heads that PEFT saves only on request: the
// pooler of BERT, and the layers of ModernBERT that precede the classifier.
var unsavedHeads = []string{"pooler", "head"}

// saveHeads adds newly initialized parts of the head to modules_to_save, so that they are
// trained and saved. With an adapter alone, their random weights would differ at the next load.
func (t *texts) saveHeads(m *model.Model, c *lora.Config) *lora.Config {
	for _, part := range unsavedHeads {
		fresh := slices.ContainsFunc(m.Fresh(), func(name string) bool { return strings.Contains("."+name, "."+part+".") })
		if fresh && !slices.Contains(c.ModulesToSave, part) {
			c = c.Clone()
			c.ModulesToSave = append(c.ModulesToSave, part)
			t.Note("note     the checkpoint has no %s: a new one is trained and saved (modules_to_save)", part)
		}
	}
	return c
}

// headNotes describe the classes, and the parts of the head that are newly initialized.
func headNotes(m *model.Model) []string {
	c := m.Config.Classes
	head := fmt.Sprintf("head     %s", c.Problem)
	if c.Problem != data.Regression {
		head += fmt.Sprintf(", %d classes: %s", len(c.Names), strings.Join(c.Names, ", "))
	}
	if names := m.Fresh(); len(names) > 0 {
		return []string{head, "note     new in the model, random numbers of the seed: " + strings.Join(names, ", ")}
	}
	return []string{head}
}
