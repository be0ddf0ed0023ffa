package lorafuse

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/classify"
	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/lora"
)

// Merge merges an adapter into the weights of a model and writes the result to the folder output,
// which must be empty or absent. Parameter name is a folder or a Hub name. Programs read the result like any
// model. The write is atomic.
func Merge(ctx context.Context, name, adapter, output string) error {
	if err := mergeInto(ctx, name, adapter, output); err != nil {
		return fmt.Errorf("lorafuse: merge: %w", err)
	}
	return nil
}

func mergeInto(ctx context.Context, name, adapter, output string) error {
	dir, err := hub.Resolve(ctx, name, hub.Options{})
	if err != nil {
		return err
	}
	a, err := lora.Load(adapter)
	if err != nil {
		return err
	}
	defer a.Close()
	open := model.Open
	if a.Config.IsClassifier() {
		open = func(dir string) (*model.Model, error) { return classify.OpenModel(dir, adapter) }
	}
	m, err := open(dir)
	if err != nil {
		return err
	}
	defer m.Close()
	p, _, err := a.Place(lora.ModelOf(m.Config.ModelType, m.Modules()), m.Fresh(), lora.CheckOptions{})
	if err != nil {
		return err
	}
	_, err = merge.Write(ctx, output, m, a, p, merge.Options{})
	return err
}
