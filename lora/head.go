package lora

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// SequenceClassification is PEFT's task_type of adapters of classifiers.
const SequenceClassification = "SEQ_CLS"

// headNames are the heads of classifiers: PEFT trains and saves them whole, whichever
// of them a model has.
var headNames = []string{"classifier", "score"}

// IsClassifier reports whether the adapter belongs to a classifier, by its task_type.
func (c *Config) IsClassifier() bool {
	return c.TaskType != nil && *c.TaskType == SequenceClassification
}

// saveHead adds the heads of classifiers to modules_to_save, as
// PeftModelForSequenceClassification does.
func (p *placer) saveHead() error {
	c := p.config
	if !c.IsClassifier() {
		return nil
	}
	isHead := func(m Module) bool {
		return slices.ContainsFunc(headNames, func(name string) bool { return m.Name == name || strings.HasPrefix(m.Name, name+".") })
	}
	if !slices.ContainsFunc(p.model.Modules, isHead) {
		return unsupported("task_type", "%s is for a model with a head that classifies, and this one has neither %q nor %q", SequenceClassification, headNames[0], headNames[1])
	}
	for _, name := range headNames {
		if !slices.Contains(c.ModulesToSave, name) {
			c.ModulesToSave = append(c.ModulesToSave, name)
		}
	}
	return nil
}

// CheckComplete fails with ErrMissing if the adapter lacks one of the parameters in names.
// The model initializes these randomly, so only the adapter can supply them.
func (p *Placement) CheckComplete(names []string) error {
	var saved []string
	for _, s := range p.Tensors() {
		if s.Role == RoleSaved || s.Role == RoleBias {
			saved = append(saved, s.Module+"."+s.Param)
		}
	}
	for _, name := range names {
		if !slices.Contains(saved, name) {
			return fmt.Errorf("lora: %w: %q is neither in the checkpoint nor saved with the adapter (modules_to_save)%s", ErrMissing, name, suggest.DidYouMean(name, saved))
		}
	}
	return nil
}

// NumClasses returns the number of classes of the head in the adapter, or ErrMissing if
// there is none.
func (a *Adapter) NumClasses() (int, error) {
	for _, name := range []string{"classifier", "classifier.out_proj", "score"} {
		if t, ok := a.tensors[keyPrefix+name+".weight"]; ok && len(t.Shape) == 2 {
			return t.Shape[0], nil
		}
	}
	return 0, fmt.Errorf("lora: %s%w: no weight of a head that classifies, expected %sclassifier.weight, or that of score", a.where(), ErrMissing, keyPrefix)
}
