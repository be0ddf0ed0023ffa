package trainer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// Train an adapter on one batch. The loss is compiled for the first one.
func ExampleTrainer() {
	m, err := model.Open("../../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	h := host.Open(dev, m)
	defer h.Close()
	if err := fit(context.Background(), h); err != nil {
		log.Fatal(err)
	}
	// Output: the loss falls: true
}

func fit(ctx context.Context, h *host.Host) error {
	m := h.Model()
	p, err := lora.NewPlacement(lora.DefaultConfig(), lora.ModelOf(m.Config.ModelType, m.Modules()))
	if err != nil {
		return err
	}
	state, err := p.InitialState(m, 1)
	if err != nil {
		return err
	}
	slot, err := h.Attach(state)
	if err != nil {
		return err
	}
	plan := trainer.Plan{Sums: trainer.LossOf(model.NextToken).Totals()}
	for _, t := range p.Tensors() {
		plan.Trained = append(plan.Trained, nn.Trained{Name: t.Key, Shape: t.Shape})
	}
	t := trainer.New(h, slot, plan)

	loss := trainer.LossOf(model.NextToken).Training(8)
	var b data.Batch
	b.Add([]int32{1, 2, 3}, []int32{2, 3, 4})
	settings := trainer.Adam{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}
	var losses []float32
	for step := range 5 {
		if _, err := t.Compute(ctx, loss, &b, b.Longest()); err != nil {
			return err
		}
		r, err := t.Step(ctx, settings, 1/float32(b.LossTokens), step+1)
		if err != nil {
			return err
		}
		losses = append(losses, r.Sums[0])
	}
	fmt.Println("the loss falls:", losses[4] < losses[0])
	return nil
}
