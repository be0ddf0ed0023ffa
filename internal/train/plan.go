package train

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// plan holds the programs of a step: micro accumulates gradients and update applies
// them; eval and reference are optional.
type plan struct {
	step                           trainer.Plan
	micro, update, eval, reference *engine.Draft
	take                           *engine.Draft // of gradients for other ranks, or nil
}

// drafts returns the programs of the plan that are not nil.
func (p plan) drafts() []*engine.Draft {
	return slices.DeleteFunc([]*engine.Draft{p.micro, p.update, p.eval, p.reference, p.take}, func(d *engine.Draft) bool { return d == nil })
}

// plan plans the programs of a step.
func (p *Planner) plan(o EngineOptions) (all plan, err error) {
	if all.micro, err = p.planLoss(o); err != nil {
		return all, err
	}
	all.step = trainer.Plan{Optimizer: o.Optimizer, Trained: all.micro.Trained, Sums: o.Loss.Totals(), Shared: p.base != nil}
	if all.update, err = p.host.Plan(p.slot, all.step.Step(o.Adam)); err != nil {
		return all, err
	}
	if o.Shared {
		if all.take, err = p.host.Plan(p.slot, all.step.Take()); err != nil {
			return all, err
		}
	}
	if o.MaxEvalTokens > 0 {
		if all.eval, err = p.host.Plan(p.slot, o.Loss.Evaluation(o.MaxEvalTokens).Spec(p.model)); err != nil {
			return all, err
		}
	}
	all.reference, err = p.planReference(o)
	return all, err
}

// planLoss plans the program of a micro-batch.
func (p *Planner) planLoss(o EngineOptions) (*engine.Draft, error) {
	return p.host.Plan(p.slot, o.training().Spec(p.model))
}
