package train

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// planReference plans the program of the loss's reference, if it has one.
func (p *Planner) planReference(o EngineOptions) (*engine.Draft, error) {
	l := o.Loss
	if l.Reference == nil {
		return nil, nil
	}
	if p.bare == nil {
		var err error
		if p.bare, err = p.host.NewSlot(nil); err != nil {
			return nil, err
		}
	}
	return p.host.Plan(p.bare, engine.Spec{Bounds: l.Axes(max(o.MaxTokens, o.MaxEvalTokens)), Build: func(b *nn.Builder, program *graph.Program) {
		program.Result(engine.SlotPrefix+referenceName, l.Reference(b, p.model.Build(b)))
	}})
}

// Reference computes the reference of each text in a batch, by the model without the
// adapter, and stores it in dst.
func (e *Engine) Reference(ctx context.Context, b *data.Batch, dst []float32) error {
	e.planner.host.Lock()
	defer e.planner.host.Unlock()
	e.opts.Loss.Prepare(b)
	e.given.batch = b
	if err := e.reference.Run(ctx, e.planner.bare, &e.given, b.Longest()); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return e.planner.host.ReadSlot(ctx, e.planner.bare, referenceName, dst[:b.Rows()])
}
