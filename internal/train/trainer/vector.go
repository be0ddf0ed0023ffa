package trainer

import (
	"context"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// vectorName is the result of the program of [Plan.Take].
const vectorName = "trainer.vector"

// Elements returns the length of the vector of [Trainer.Take].
func (p *Plan) Elements() (n int) {
	for _, t := range p.Trained {
		n += ir.ShapeOf(t.Shape...).Elements(nil)
	}
	for _, s := range p.Sums {
		n += s.Size
	}
	return n
}

// Take returns the program that concatenates the gradients and the sums, and clears them.
func (p *Plan) Take() engine.Spec {
	return engine.Spec{Name: "trainer.take " + p.identity(), Build: p.emitVector}
}

func (p *Plan) emitVector(b *nn.Builder, program *graph.Program) {
	var parts []graph.Tensor
	take := func(name string, shape []int) {
		of := ir.ShapeOf(shape...)
		x := b.G.Param(engine.SlotPrefix+name, tensor.F32, of...)
		parts = append(parts, x.Reshape(ir.Static(of.Elements(nil))))
		program.Update(engine.SlotPrefix+name, b.G.Const(0, of...))
	}
	for _, t := range p.Trained {
		take(gradient(t.Name), t.Shape)
	}
	for _, s := range p.Sums {
		take(s.Name, s.shape())
	}
	program.Result(vectorName, graph.Concat(0, parts...))
}

// Take copies the gradients and the sums since the last step into dst, one after the other in
// the order of the plan, and sets them to zero. dst has [Plan.Elements] elements.
func (t *Trainer) Take(ctx context.Context, dst []float32) error {
	t.host.Lock()
	defer t.host.Unlock()
	p, err := t.host.Program(ctx, t.slot, t.plan.Take())
	if err != nil {
		return err
	}
	if err := p.Run(ctx, t.slot, &t.step, 1); err != nil {
		return err
	}
	return p.Read(ctx, vectorName, dst)
}

// Put sets the gradients and the sums to the elements of a vector from Take, or of a sum of such
// vectors.
func (t *Trainer) Put(ctx context.Context, src []float32) error {
	t.host.Lock()
	defer t.host.Unlock()
	var names []string
	for _, x := range t.plan.Trained {
		names = append(names, gradient(x.Name))
	}
	for _, s := range t.plan.Sums {
		names = append(names, s.Name)
	}
	return t.slot.SetAll(ctx, names, src)
}
