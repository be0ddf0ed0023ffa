package trainer

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the inputs and of the result of a step.
const (
	ratesInput   = "rates"
	inverseInput = "inverse labels"
	clipInput    = "clip norm"
	mapsInput    = "maps of moments"
	reportName   = "step.report" // norm of the gradients, followed by the sums
)

// LossSum is the name of the sum of the losses. A step changes nothing if it is not finite.
const LossSum = "loss.sum"

// Sum is a value in the slot to which passes add, and which a step reports and clears.
type Sum struct {
	Name string
	Size int // 1: a scalar
}

func (s Sum) shape() []int {
	if s.Size == 1 {
		return nil
	}
	return []int{s.Size}
}

// Plan describes the step of an adapter: its trained parameters, its optimizer and the sums of
// its losses.
type Plan struct {
	Optimizer Optimizer
	Trained   []nn.Trained
	Sums      []Sum // LossSum first, if passes add to it
	Memory    int64 // budget in bytes for the adapter, its gradients and moments, and one pass; 0: what the device has
	Shared    bool  // the host has other trainers: a pass waits for its run, so that errors of it reach no other
}

// identity identifies the trained parameters and the sums in the name of a program.
func (p *Plan) identity() string {
	h := fnv.New64a()
	for _, t := range p.Trained {
		fmt.Fprintln(h, t.Name, t.Shape)
	}
	return fmt.Sprintf("%v %x", p.Sums, h.Sum(nil))
}

func (p *Plan) hasLoss() bool { return len(p.Sums) > 0 && p.Sums[0].Name == LossSum }

// Step returns the program of a step. The betas and the epsilon are compiled in; the other
// settings are inputs.
func (p *Plan) Step(a Adam) engine.Spec {
	attr := a.constants()
	return engine.Spec{
		Name:  fmt.Sprintf("trainer.step %s %+v %v", p.Optimizer, attr, p.identity()),
		Build: func(b *nn.Builder, program *graph.Program) { p.emit(b, program, attr) },
	}
}

// emit clips the gradients by their norm over all trained parameters, as
// torch.nn.utils.clip_grad_norm_ does, and performs one step of AdamW.
func (p *Plan) emit(b *nn.Builder, program *graph.Program, attr ir.AdamWAttr) {
	g := b.G
	param := func(name string, shape []int) graph.Tensor {
		return g.Param(engine.SlotPrefix+name, tensor.F32, ir.ShapeOf(shape...)...)
	}
	grads := make([]graph.Tensor, len(p.Trained))
	var squares graph.Tensor
	for i, t := range p.Trained {
		grads[i] = param(gradient(t.Name), t.Shape)
		if s := grads[i].SumSquares(); i == 0 {
			squares = s
		} else {
			squares = squares.Add(s)
		}
	}
	scale := b.Input(inverseInput, tensor.F32)
	norm := squares.Apply(ir.Sqrt).Mul(scale)
	scale = scale.Mul(b.Input(clipInput, tensor.F32).Div(norm.AddScalar(1e-6)).Min(g.Const(1)))
	// If the norm or the loss is not finite, the scale becomes NaN, and nothing is updated.
	scale = scale.Add(norm.Sub(norm))
	report := []graph.Tensor{norm.Reshape(ir.Static(1))}
	for i, s := range p.Sums {
		x := param(s.Name, s.shape())
		if i == 0 && p.hasLoss() {
			scale = scale.Add(x.Sub(x))
		}
		report = append(report, x.Reshape(ir.Static(s.Size)))
	}
	program.Result(engine.SlotPrefix+reportName, graph.Concat(0, report...))
	rates := b.Input(ratesInput, ir.AdamWRates.DType, ir.AdamWRates.Shape...)
	clear := func(name string, shape []int) {
		program.Update(engine.SlotPrefix+name, g.Const(0, ir.ShapeOf(shape...)...))
	}
	for i, t := range p.Trained {
		p.Optimizer.emit(b, program, t, grads[i], rates, scale, attr)
		clear(gradient(t.Name), t.Shape)
	}
	for _, s := range p.Sums {
		clear(s.Name, s.shape())
	}
}

// stepInputs holds the program, the inputs and the result of a step, so that a step allocates
// nothing.
type stepInputs struct {
	spec          engine.Spec
	constants     ir.AdamWAttr // of spec
	rates         [3]float32
	inverse, clip [1]float32
	maps          []float32 // values of the codes of 8-bit moments; nil for 32-bit moments
	report        []float32
}

// Array implements nn.Arrays.
func (s *stepInputs) Array(name string) ([]byte, bool) {
	switch name {
	case ratesInput:
		return tensor.BytesOf(s.rates[:]), true
	case inverseInput:
		return tensor.BytesOf(s.inverse[:]), true
	case clipInput:
		return tensor.BytesOf(s.clip[:]), true
	case mapsInput:
		return tensor.BytesOf(s.maps), true
	}
	return nil, false
}

// Report is the result of a step.
type Report struct {
	GradNorm float64   // before clipping
	Sums     []float32 // the values of [Plan.Sums], concatenated; valid until the next step
}

// Step updates the parameters by the gradients since the last step, and clears them and the
// sums. inverse scales the gradients, such as to their mean over labels; number counts steps
// from 1. If the loss or the norm is not finite, the parameters do not change and the error is
// ErrNotFinite.
func (t *Trainer) Step(ctx context.Context, a Adam, inverse float32, number int) (Report, error) {
	t.host.Lock()
	defer t.host.Unlock()
	p, err := t.host.Program(ctx, t.slot, t.stepSpec(a))
	if err != nil {
		return Report{}, err
	}
	in := &t.step
	in.rates = a.constants().Rates(a.LearningRate, a.WeightDecay, number)
	in.inverse[0], in.clip[0] = inverse, float32(math.Inf(1))
	if a.MaxGradNorm > 0 {
		in.clip[0] = float32(a.MaxGradNorm)
	}
	if err := t.host.Commit(); err != nil {
		return Report{}, err
	}
	t.slot.Changed()
	if err := p.Run(ctx, t.slot, in, 1); err != nil {
		return Report{}, err
	}
	if err := t.host.ReadSlot(ctx, t.slot, reportName, in.report); err != nil {
		return Report{}, err
	}
	r, finite := Report{float64(in.report[0]), in.report[1:]}, float64(in.report[0])
	if t.plan.hasLoss() {
		finite += float64(r.Sums[0])
	}
	if math.IsNaN(finite) || math.IsInf(finite, 0) {
		return r, fmt.Errorf("step %d: the gradient norm is %v: %w", number, r.GradNorm, ErrNotFinite)
	}
	return r, nil
}
