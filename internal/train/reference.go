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
	return p.host.Plan(p.bare, engine.Spec{Name: "loss.reference " + l.Name, Bounds: l.Axes(max(o.MaxTokens, o.MaxEvalTokens)), Build: func(b *nn.Builder, program *graph.Program) {
		program.Result(referenceName, l.Reference(b, p.model.Build(b)))
	}})
}

// Reference computes the reference of each text in a batch, by the model without the
// adapter, and stores it in dst.
func (e *Engine) Reference(ctx context.Context, b *data.Batch, dst []float32) error {
	e.planner.host.Lock()
	defer e.planner.host.Unlock()
	e.opts.Loss.Prepare(b)
	e.given.batch = b
	results, err := e.planner.host.Compute(ctx, e.planner.bare, e.plan.reference.Spec(), &e.given, b.Longest())
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return results.Read(ctx, referenceName, dst[:b.Rows()])
}
