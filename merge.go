package lorafuse

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/merge"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/model/hub"
)

// Merge writes the model in a folder or on the Hub with an adapter merged into its weights: a
// folder that every program reads without knowing of adapters. output must be empty or absent,
// and is there whole or not at all.
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
	m, err := model.Open(dir)
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := lora.Load(adapter)
	if err != nil {
		return err
	}
	defer a.Close()
	p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
	if err != nil {
		return err
	}
	if err := a.Check(p, lora.CheckOptions{}).Err(); err != nil {
		return err
	}
	_, err = merge.Write(ctx, output, m, a, p, merge.Options{})
	return err
}
