package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrNotFinite is wrapped by the error for a training loss that is NaN or infinite.
var ErrNotFinite = errors.New("not finite")

// AdamWOptions configures [NewAdamW]. Zero fields mean the defaults of PyTorch: a rate of 1e-3, betas of 0.9 and 0.999,
// an epsilon of 1e-8. Weight decay defaults to zero.
type AdamWOptions struct {
	Rate, Beta1, Beta2, Eps, WeightDecay float64
}

// AdamW is an optimizer of values of a graph (Loshchilov and Hutter 2017, arXiv 1711.05101). Gradients and the
// optimizer step are tensors of the graph of the loss; params and moments live on the host. It is not safe for
// concurrent use.
type AdamW struct {
	Rate    float64 // learning rate of later steps
	options AdamWOptions
	state   map[identity]*moments

	// The last loss and its step, kept so that evaluating the same loss again does not differentiate it again.
	loss   Tensor
	params []Tensor
	built  []Tensor // the loss, and for each param its new value and moments
	states []*moments
}

// moments holds the optimizer state of one param.
type moments struct {
	param, m, v, rates tensor.Tensor
	steps              int
}

// NewAdamW returns an optimizer without state. It fails with [ir.ErrGraph] if a setting is out of range.
func NewAdamW(o AdamWOptions) (*AdamW, error) {
	for _, d := range []struct {
		name     string
		x        *float64
		zero, to float64
	}{{"rate", &o.Rate, 1e-3, math.MaxFloat32}, {"beta1", &o.Beta1, 0.9, 1}, {"beta2", &o.Beta2, 0.999, 1}, {"eps", &o.Eps, 1e-8, 1}, {"weight decay", &o.WeightDecay, 0, math.MaxFloat32}} {
		if *d.x == 0 {
			*d.x = d.zero
		}
		if !(*d.x >= 0 && *d.x < d.to) {
			return nil, fmt.Errorf("graph: %w: adamw: %s is %v, expected 0 to less than %v", ir.ErrGraph, d.name, *d.x, d.to)
		}
	}
	return &AdamW{Rate: o.Rate, options: o, state: map[identity]*moments{}}, nil
}

// Step evaluates the scalar loss and its gradients for params, moves the params by one step, overwriting their data,
// and returns the loss before the step. params must be f32 values of the graph of the loss. Each step may use a new
// graph: params are identified by their memory. If the loss is not finite, Step changes nothing and fails with
// ErrNotFinite.
func (o *AdamW) Step(ctx context.Context, e *Evaluator, loss Tensor, params ...Tensor) (float64, error) {
	if o.loss != loss || !slices.Equal(o.params, params) {
		if err := o.build(loss, params); err != nil {
			return 0, err
		}
	}
	for _, s := range o.states {
		attr := ir.AdamWAttr{Beta1: o.options.Beta1, Beta2: o.options.Beta2}
		rates := attr.Rates(o.Rate, o.options.WeightDecay, s.steps+1)
		if err := tensor.FromFloat32(s.rates.Data, rates[:], tensor.F32); err != nil {
			return 0, err
		}
	}
	out, err := e.Eval(ctx, o.built...)
	if err != nil {
		return 0, err
	}
	value, err := out[0].Float32s()
	if err != nil {
		return 0, err
	}
	if x := float64(value[0]); math.IsNaN(x) || math.IsInf(x, 0) {
		return x, fmt.Errorf("graph: adamw: the loss is %v, %w: lower the rate, or look at the data", x, ErrNotFinite)
	}
	for i, s := range o.states {
		s.steps++
		for j, to := range []tensor.Tensor{s.param, s.m, s.v} {
			copy(to.Data, out[1+3*i+j].Data)
		}
	}
	return float64(value[0]), nil
}

// build appends the gradients and the optimizer step to the graph of the loss.
func (o *AdamW) build(loss Tensor, params []Tensor) error {
	if loss.g == nil || len(params) == 0 {
		return fmt.Errorf("graph: %w: adamw: there is no loss, or nothing to train", ir.ErrGraph)
	}
	g := loss.g
	built, states := []Tensor{loss}, []*moments(nil)
	grads := g.Gradients(loss, params, false)
	if err := g.Err(); err != nil {
		return err
	}
	for i, p := range params {
		s, err := o.moments(p)
		if err != nil {
			return err
		}
		a := ir.AdamWAttr{Beta1: o.options.Beta1, Beta2: o.options.Beta2, Eps: o.options.Eps}
		p2, m2, v2 := p.AdamW(g.Value(s.m), g.Value(s.v), grads[i], g.Value(s.rates), g.Ones(), a)
		built, states = append(built, p2, m2, v2), append(states, s)
	}
	if err := g.Err(); err != nil {
		return err
	}
	o.loss, o.params, o.built, o.states = loss, slices.Clone(params), built, states
	return nil
}

// moments returns the moments of a param, and creates them at first use.
func (o *AdamW) moments(p Tensor) (*moments, error) {
	data, ok := p.Data()
	if !ok || data.DType != tensor.F32 {
		return nil, fmt.Errorf("graph: %w: adamw: %s is no f32 value of the graph; make it by Graph.Value", ir.ErrGraph, p.g.ir.Describe(p.v))
	}
	id := identityOf(data)
	if s := o.state[id]; s != nil {
		return s, nil
	}
	s := &moments{param: data}
	for _, x := range []struct {
		t     *tensor.Tensor
		shape []int
	}{{&s.m, data.Shape}, {&s.v, data.Shape}, {&s.rates, []int{3}}} {
		var err error
		if *x.t, err = tensor.New(tensor.F32, x.shape...); err != nil {
			return nil, err
		}
	}
	o.state[id] = s
	return s, nil
}
