package classify

import (
	"fmt"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
)

// OpenModel opens the model in dir as the classifier that the adapter in the folder
// adapter was trained on: with as many classes as the head has that the adapter brings.
// Their names are those of the file beside the adapter (model.ClassesFile), or those of
// the model's config.json where it has as many. Errors: lora.ErrMissing where the
// adapter has no head, model.ErrConfig where the names are not as many as the classes,
// and those of model.OpenClassifier, model.ReadClasses and lora.Load.
func OpenModel(dir, adapter string) (*model.Model, error) {
	a, err := lora.Load(adapter)
	if err != nil {
		return nil, err
	}
	n, err := a.HeadSize()
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
