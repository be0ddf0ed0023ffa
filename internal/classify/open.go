package classify

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// OpenModel opens the model in dir with the number of classes for which adapter was trained, the size of the head in
// the adapter. Class names come from the file next to the adapter (model.ClassesFile), or from the model's config.json
// if the number matches. It fails with lora.ErrMissing if the adapter has no head, with model.ErrConfig if the number
// of names is not the number of classes, and with errors of model.OpenClassifier, model.ReadClasses and lora.Load.
func OpenModel(dir, adapter string) (*model.Model, error) {
	a, err := lora.Load(adapter)
	if err != nil {
		return nil, err
	}
	n, err := a.NumClasses()
	if err := a.Close(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	classes, found, err := model.ReadClasses(adapter)
	if err != nil {
		return nil, err
	}
	if !found {
		c, err := model.ReadConfig(dir)
		if err != nil {
			return nil, err
		}
		if classes = c.Classes; len(classes.Names) != n {
			classes.Names = model.UnnamedClasses(n).Names
		}
	}
	if len(classes.Names) != n {
		return nil, fmt.Errorf("classify: adapter %s: %s: %w: found %d names, expected %d, as the head has classes", adapter, model.ClassesFile, model.ErrConfig, len(classes.Names), n)
	}
	return model.OpenClassifier(dir, classes, 0)
}
