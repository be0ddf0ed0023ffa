package trainer

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Pass describes the program that computes a loss of one batch.
type Pass struct {
	Name    string         // identifies what Emit emits; see engine.Spec
	Bounds  map[string]int // maximum sizes of the axes of a batch
	Forward bool           // evaluates only: dropout is off, and no gradients are added
	RowKeys bool           // see engine.Spec
	Emit    func(e *Emitter)
	// Gradients says which layers are recomputed for the gradients.
	Gradients ir.GradOptions
}

// Spec returns the program of the pass for a model.
func (p *Pass) Spec(m *model.Model) engine.Spec {
	name := p.Name
	if p.Gradients.Checkpoint {
		name = fmt.Sprintf("%s, %d layers recomputed", name, p.Gradients.Segments)
	}
	return engine.Spec{Name: name, Bounds: p.Bounds, Training: !p.Forward, RowKeys: p.RowKeys, Build: func(b *nn.Builder, program *graph.Program) {
		p.Emit(&Emitter{Builder: b, Out: m.Build(b), program: program, forward: p.Forward, options: p.Gradients})
	}}
}

// Emitter builds the program of a pass.
type Emitter struct {
	*nn.Builder
	Out     model.Outputs
	program *graph.Program
	forward bool
	options ir.GradOptions
}

// Result makes a value a result of the program.
func (e *Emitter) Result(name string, x graph.Tensor) { e.program.Result(name, x) }

// Sum adds a value to a [Sum] of the slot.
func (e *Emitter) Sum(name string, x graph.Tensor) { e.program.Accumulate(engine.SlotPrefix+name, x) }

// Backward computes the gradients of a scalar and adds them to the gradients of trained
// parameters in their slots.
func (e *Emitter) Backward(loss graph.Tensor, trained []nn.Trained) {
	if e.forward {
		return
	}
	for i, g := range e.G.GradientsWith(loss, e.Params(trained), e.options) {
		e.AddGradient(trained[i], g)
	}
}

// Params returns the values of trained parameters.
func (e *Emitter) Params(trained []nn.Trained) []graph.Tensor {
	all := make([]graph.Tensor, len(trained))
	for i, t := range trained {
		all[i] = e.G.Param(t.Param, t.DType, ir.ShapeOf(t.Shape...)...)
	}
	return all
}

// AddGradient adds to the gradient of a trained parameter in its slot.
func (e *Emitter) AddGradient(t nn.Trained, g graph.Tensor) {
	e.program.Accumulate(strings.TrimSuffix(t.Param, t.Name)+gradient(t.Name), g)
}

// gradient returns the name of the gradient of a parameter in the slot.
func gradient(name string) string { return "gradient." + name }
