package session

import (
	"context"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// Adam are the settings of one step of AdamW.
type Adam struct {
	LearningRate, Beta1, Beta2, Eps float64
	WeightDecay                     float64 // decoupled
	GradClipNorm                    float64 // of all gradients together; 0: they are not clipped
}

// DefaultAdam returns the default settings of Tinker's clients.
func DefaultAdam() Adam { return Adam{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-12} }

// check rejects invalid settings: without Eps, AdamW divides zero by zero for a zero
// gradient.
func (a Adam) check() error {
	for _, v := range []struct {
		name, want string
		value      float64
		ok         bool
	}{
		{"learning_rate", "a finite number of at least 0", a.LearningRate, a.LearningRate >= 0 && a.LearningRate <= math.MaxFloat32},
		{"beta1", "at least 0 and less than 1, such as 0.9", a.Beta1, a.Beta1 >= 0 && a.Beta1 < 1},
		{"beta2", "at least 0 and less than 1, such as 0.95", a.Beta2, a.Beta2 >= 0 && a.Beta2 < 1},
		{"eps", "a number of float32 above 0, such as 1e-12", a.Eps, float32(a.Eps) > 0 && a.Eps <= math.MaxFloat32},
		{"weight_decay", "a finite number of at least 0", a.WeightDecay, a.WeightDecay >= 0 && a.WeightDecay <= math.MaxFloat32},
		{"grad_clip_norm", "0 (no clipping) or more", a.GradClipNorm, a.GradClipNorm >= 0},
	} {
		if !v.ok {
			return invalid(v.name, "found %v, expected %s", v.value, v.want)
		}
	}
	return nil
}

// Names of the inputs and results of a step.
const (
	ratesInput = "rates"
	clipInput  = "clip norm"
	normName   = "gradient norm"
)

// adamFeed holds the inputs of a step.
type adamFeed struct {
	rates [3]float32
	clip  [1]float32
	norm  [1]float32
}

// Array implements nn.Arrays.
func (f *adamFeed) Array(name string) ([]byte, bool) {
	switch name {
	case ratesInput:
		return tensor.BytesOf(f.rates[:]), true
	case clipInput:
		return tensor.BytesOf(f.clip[:]), true
	}
	return nil, false
}

// OptimStep performs a step with the accumulated gradients and clears them. Without
// gradients it does nothing. If the gradients are not finite, the adapter is unchanged
// and the error is ErrNotFinite; if an earlier call failed and dropped them, the error
// is ErrDropped. Both clear the gradients. The metrics are grad_norm, before clipping,
// and step.
func (s *Session) OptimStep(ctx context.Context, a Adam) (map[string]float64, error) {
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	metrics := map[string]float64{"grad_norm": 0, "step": float64(s.step)}
	if why := s.lost; why != nil {
		if err := s.clear(ctx); err != nil {
			return nil, err
		}
		s.pending, s.lost = 0, nil
		return nil, fmt.Errorf("session: step %d: %w: a call has failed since the last step: %w", s.step+1, ErrDropped, why)
	}
	if s.pending == 0 {
		return metrics, nil
	}
	p, err := s.base.host.Program(ctx, s.slot, s.stepper(a.constants()))
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	s.adam.rates = a.constants().Rates(a.LearningRate, a.WeightDecay, s.step+1)
	s.adam.clip[0] = float32(math.Inf(1))
	if a.GradClipNorm > 0 {
		s.adam.clip[0] = float32(a.GradClipNorm)
	}
	ctx = context.WithoutCancel(ctx) // a step always completes, even if ctx ends
	s.slot.Changed()
	if err := p.Run(ctx, s.slot, &s.adam, 1); err != nil {
		s.drop(err)
		return nil, fmt.Errorf("session: %w", err)
	}
	if err := s.base.host.ReadSlot(ctx, s.slot, normName, s.adam.norm[:]); err != nil {
		s.drop(err)
		return nil, fmt.Errorf("session: %w", err)
	}
	s.pending = 0
	norm := float64(s.adam.norm[0])
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return nil, fmt.Errorf("session: step %d: the norm of the gradients is %v: %w; the adapter is as it was before", s.step+1, norm, ErrNotFinite)
	}
	s.step++
	metrics["grad_norm"], metrics["step"] = norm, float64(s.step)
	return metrics, nil
}

// stepper returns the spec of the program of a step. Only the constants of AdamW are
// compiled in; everything else is an input.
func (s *Session) stepper(attr ir.AdamWAttr) engine.Spec {
	key := program{shape: s.slot.Shape(), adam: attr}
	spec, ok := s.base.specs[key]
	if !ok {
		trained := s.trained
		spec = engine.Spec{Name: fmt.Sprintf("session.step %+v", attr), Build: func(b *nn.Builder, program *graph.Program) { emitStep(b, program, trained, attr) }}
		s.base.specs[key] = spec
	}
	return spec
}

func (a Adam) constants() ir.AdamWAttr {
	return ir.AdamWAttr{Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps}
}

// emitStep clips the gradients by their norm over all parameters, as
// torch.nn.utils.clip_grad_norm_ does, and performs one step of AdamW.
func emitStep(b *nn.Builder, program *graph.Program, all []lora.TensorSpec, attr ir.AdamWAttr) {
	g := b.G
	param := func(name string, shape []int) graph.Tensor {
		return g.Param(engine.SlotPrefix+name, tensor.F32, ir.ShapeOf(shape...)...)
	}
	var squares graph.Tensor
	for i, t := range all {
		if x := param(gradientPrefix+t.Key, t.Shape).SumSquares(); i == 0 {
			squares = x
		} else {
			squares = squares.Add(x)
		}
	}
	norm := squares.Apply(ir.Sqrt)
	scale := b.Input(clipInput, tensor.F32, ir.Static(1)).Reshape().Div(norm.AddScalar(1e-6)).Min(g.Const(1))
	scale = scale.Add(norm.Sub(norm)) // NaN if the norm is not finite, so that nothing is updated
	program.Result(engine.SlotPrefix+normName, norm.Reshape(ir.Static(1)))
	rates := b.Input(ratesInput, ir.AdamWRates.DType, ir.AdamWRates.Shape...)
	update := func(name string, t graph.Tensor) { program.Update(engine.SlotPrefix+name, t) }
	for _, t := range all {
		p, m, v := param(t.Key, t.Shape), param(firstPrefix+t.Key, t.Shape), param(secondPrefix+t.Key, t.Shape)
		gradient := param(gradientPrefix+t.Key, t.Shape)
		p, m, v = p.AdamW(m, v, gradient, rates, scale, attr)
		update(t.Key, p)
		update(firstPrefix+t.Key, m)
		update(secondPrefix+t.Key, v)
		update(gradientPrefix+t.Key, g.Const(0, ir.ShapeOf(t.Shape...)...))
	}
}
