package train

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// plan holds the programs of a step: micro accumulates gradients and update applies
// them; eval and reference are optional.
type plan struct{ micro, update, eval, reference *engine.Draft }

// drafts returns the programs of the plan that are not nil.
func (p plan) drafts() []*engine.Draft {
	return slices.DeleteFunc([]*engine.Draft{p.micro, p.update, p.eval, p.reference}, func(d *engine.Draft) bool { return d == nil })
}

// placed pairs drafts with the slots for which they were planned.
func (p *Planner) placed(drafts []*engine.Draft, reference *engine.Draft) (all []engine.Placed) {
	for _, d := range drafts {
		slot := p.slot
		if d == reference {
			slot = p.bare
		}
		all = append(all, engine.Placed{Slot: slot, Draft: d})
	}
	return all
}

// plan plans the programs of a step.
func (p *Planner) plan(o EngineOptions) (all plan, err error) {
	if all.micro, err = p.planMicro(o); err != nil {
		return all, err
	}
	if all.update, err = p.planUpdate(o, all.micro.Trained); err != nil {
		return all, err
	}
	if o.MaxEvalTokens > 0 {
		if all.eval, err = p.planEvaluation(o); err != nil {
			return all, err
		}
	}
	all.reference, err = p.planReference(o)
	return all, err
}

func (p *Planner) planMicro(o EngineOptions) (*engine.Draft, error) {
	l := o.loss()
	return p.host.Plan(p.slot, engine.Spec{Bounds: l.bounds(o.MaxTokens), Training: true, Build: func(b *nn.Builder, program *graph.Program) {
		loss, sums := l.Emit(b, p.model.Build(b))
		if l.Sums > 0 {
			program.Accumulate(engine.SlotPrefix+sumsName, sums)
		}
		trained := b.Trained()
		params := make([]graph.Tensor, len(trained))
		for i, t := range trained {
			params[i] = b.Train(t.Name, t.Shape...)
		}
		program.Accumulate(engine.SlotPrefix+lossName, loss)
		for i, g := range b.G.GradientsWith(loss, params, ir.GradOptions{Checkpoint: o.Checkpointing, Segments: o.Recomputed}) {
			program.Accumulate(engine.SlotPrefix+gradParam(trained[i].Name), g)
		}
	}})
}

func (p *Planner) planEvaluation(o EngineOptions) (*engine.Draft, error) {
	l := o.loss()
	return p.host.Plan(p.slot, engine.Spec{Bounds: l.bounds(o.MaxEvalTokens), Build: func(b *nn.Builder, program *graph.Program) {
		out := p.model.Build(b)
		loss, sums := l.Emit(b, out)
		program.Result(engine.SlotPrefix+evalResult, loss)
		if l.Sums > 0 {
			program.Result(engine.SlotPrefix+evalSums, sums)
		}
		if l.Scores != nil {
			program.Result(engine.SlotPrefix+evalScores, l.Scores(b, out))
		}
	}})
}

// planUpdate plans the update: it clips the gradients by their norm over all trained
// parameters, as torch.nn.utils.clip_grad_norm_ does, and performs one step of AdamW.
func (p *Planner) planUpdate(o EngineOptions, trained []nn.Trained) (*engine.Draft, error) {
	return p.host.Plan(p.slot, engine.Spec{Build: func(b *nn.Builder, program *graph.Program) {
		g := b.G
		param := func(name string, shape []int) graph.Tensor {
			return g.Param(engine.SlotPrefix+name, tensor.F32, ir.ShapeOf(shape...)...)
		}
		grads := make([]graph.Tensor, len(trained))
		var squares graph.Tensor
		for i, t := range trained {
			grads[i] = param(gradParam(t.Name), t.Shape)
			if s := grads[i].SumSquares(); i == 0 {
				squares = s
			} else {
				squares = squares.Add(s)
			}
		}
		loss, scale := param(lossName, nil), b.Input(inverseInput, tensor.F32)
		norm := squares.Apply(ir.Sqrt).Mul(scale)
		if o.MaxGradNorm > 0 {
			clip := g.Const(o.MaxGradNorm).Div(norm.AddScalar(1e-6)).Min(g.Const(1))
			scale = scale.Mul(clip)
		}
		// If the loss or the norm is not finite, the scale becomes NaN, and nothing is
		// updated.
		scale = scale.Add(norm.Sub(norm)).Add(loss.Sub(loss))
		one := ir.Static(1)
		report := []graph.Tensor{loss.Reshape(one), norm.Reshape(one)}
		sums := o.loss().Sums
		if sums > 0 {
			report = append(report, param(sumsName, []int{sums}))
		}
		program.Result(engine.SlotPrefix+reportName, graph.Concat(0, report...))
		rates := b.Input(ratesInput, ir.AdamWRates.DType, ir.AdamWRates.Shape...)
		attr := o.constants()
		update := func(name string, t graph.Tensor) { program.Update(engine.SlotPrefix+name, t) }
		for i, t := range trained {
			o.Optimizer.step(b, program, t, grads[i], rates, scale, attr)
			update(gradParam(t.Name), g.Const(0, ir.ShapeOf(t.Shape...)...))
		}
		update(lossName, g.Const(0))
		if sums > 0 {
			update(sumsName, g.Const(0, ir.Static(sums)))
		}
	}})
}

func gradParam(name string) string { return "gradient." + name }
