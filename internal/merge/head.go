package merge

import (
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
)

// classifies reports whether the result is a classifier, whose files contain its own
// head and no other.
func (w *writer) classifies() bool { return w.model.Config.Part == model.Classifier }

// isFresh reports whether a weight of the model is missing from its files.
func (w *writer) isFresh(name string) bool { return slices.Contains(w.model.Fresh(), name) }

// headed returns the name of a weight in the files of a model with a head. The files of
// a model without one omit the name of the body.
func (w *writer) headed(file, is string) string {
	if e, ok := w.model.Config.Family.(*model.Encoder); ok {
		if w.parts[is] != nil || e.StoredNames == nil {
			return is
		}
		return e.StoredNames.Replace(is)
	}
	if w.model.Config.IsWrapped() {
		return is
	}
	if prefix := "model."; strings.HasPrefix(is, prefix) && !strings.HasPrefix(file, prefix) {
		return prefix + file
	}
	return file
}

// addFresh adds the weights of a head that are missing from the model's files.
func (w *writer) addFresh() error {
	for _, name := range w.model.Fresh() {
		x, err := w.model.Weight(name)
		if err != nil {
			return err
		}
		w.weights = append(w.weights, weight{name: name, is: name, out: w.outType(safetensors.F32), shape: x.Shape})
	}
	return nil
}
