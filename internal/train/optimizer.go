package train

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// Optimizer is the algorithm that updates the trained parameters.
type Optimizer string

// The optimizers. The zero value is AdamW.
const (
	AdamW Optimizer = "adamw" // Loshchilov and Hutter 2017, arXiv 1711.05101
	// AdamW8bit stores moments in 8 bits, like bitsandbytes' AdamW8bit. Parameters with
	// fewer than 4096 elements use 32-bit moments.
	AdamW8bit Optimizer = "adamw_8bit"
)

// least8 is the least number of elements of a parameter with moments of 8 bits.
const least8 = 4096

// check refuses names of no optimizer.
func (o Optimizer) check() error {
	if o == "" || o == AdamW || o == AdamW8bit {
		return nil
	}
	return fmt.Errorf("train: %w: Optimizer: %s", ErrOption, suggest.Expected(string(o), []string{string(AdamW), string(AdamW8bit)}))
}

// narrow reports whether a parameter of n elements has moments of 8 bits.
func (o Optimizer) narrow(n int) bool { return o == AdamW8bit && n >= least8 }

// maps returns the values of the codes of 8-bit moments, or nil for 32-bit moments.
func (o Optimizer) maps() []float32 {
	if o != AdamW8bit {
		return nil
	}
	return ir.AdamW8MapValues()
}

// moment is one tensor of optimizer state for a parameter.
type moment struct {
	name string // in the slot
	ir.Type
}

// moments returns the optimizer state of a parameter.
func (o Optimizer) moments(name string, shape []int) []moment {
	t := ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(shape...)}
	if !o.narrow(product(shape)) {
		return []moment{{"moment1." + name, t}, {"moment2." + name, t}}
	}
	codes, scales := ir.Type{DType: tensor.U8, Shape: t.Shape}, ir.AdamW8Scales(t)
	return []moment{{"moment1." + name, codes}, {"moment2." + name, codes}, {"scale1." + name, scales}, {"scale2." + name, scales}}
}

// step moves a parameter by its gradient times scale.
func (o Optimizer) step(b *nn.Builder, program *graph.Program, t nn.Trained, grad, rates, scale graph.Tensor, a ir.AdamWAttr) {
	var kept []graph.Tensor
	moments := o.moments(t.Name, t.Shape)
	for _, m := range moments {
		kept = append(kept, b.G.Param(engine.SlotPrefix+m.name, m.DType, m.Shape...))
	}
	w := b.Train(t.Name, t.Shape...)
	var next []graph.Tensor
	if o.narrow(product(t.Shape)) {
		maps := b.Input(mapsInput, ir.AdamW8Maps.DType, ir.AdamW8Maps.Shape...)
		all := w.AdamW8(kept[0], kept[1], kept[2], kept[3], grad, maps, rates, scale, a)
		w, next = all[0], all[1:]
	} else {
		var m, v graph.Tensor
		w, m, v = w.AdamW(kept[0], kept[1], grad, rates, scale, a)
		next = []graph.Tensor{m, v}
	}
	program.Update(engine.SlotPrefix+t.Name, w)
	for i, m := range moments {
		program.Update(engine.SlotPrefix+m.name, next[i])
	}
}

// Moments returns a copy of the optimizer state of all trained parameters, by name.
func (e *Engine) Moments(ctx context.Context) (map[string]tensor.Tensor, error) {
	e.host.Lock()
	defer e.host.Unlock()
	out := map[string]tensor.Tensor{}
	for _, t := range e.trained {
		for _, m := range e.opts.Optimizer.moments(t.Name, t.Shape) {
			x, err := tensor.New(m.DType, m.Shape.Elements(nil))
			if err != nil {
				return nil, err
			}
			if err := e.host.ReadSlotBytes(ctx, e.slot, m.name, x.Data); err != nil {
				return nil, err
			}
			out[m.name] = x
		}
	}
	return out, nil
}

// SetMoments is the inverse of Moments.
func (e *Engine) SetMoments(ctx context.Context, moments map[string]tensor.Tensor) error {
	e.host.Lock()
	defer e.host.Unlock()
	for _, t := range e.trained {
		for _, m := range e.opts.Optimizer.moments(t.Name, t.Shape) {
			x, ok := moments[m.name]
			if n := m.Shape.Elements(nil); !ok || x.DType != m.DType || x.NumElements() != n {
				return fmt.Errorf("train: the moments have %v %v for %q, expected %v %v", x.DType, x.Shape, m.name, m.DType, []int{n})
			}
			if err := e.slot.SetBytes(ctx, m.name, x.Data); err != nil {
				return err
			}
		}
	}
	return nil
}
