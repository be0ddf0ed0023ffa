package trainer

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// Adam holds the settings of a step of AdamW. Each step may have other settings.
type Adam struct {
	LearningRate, Beta1, Beta2, Eps float64
	WeightDecay                     float64 // decoupled
	MaxGradNorm                     float64 // norm of all gradients together to which they are clipped; 0: no clipping
}

// Check rejects invalid settings: without Eps, AdamW divides zero by zero for a zero gradient.
func (a Adam) Check() error {
	for _, v := range []struct {
		name, want string
		value      float64
		ok         bool
	}{
		{"learning_rate", "a finite number of at least 0", a.LearningRate, a.LearningRate >= 0 && a.LearningRate <= math.MaxFloat32},
		{"beta1", "at least 0 and less than 1, such as 0.9", a.Beta1, a.Beta1 >= 0 && a.Beta1 < 1},
		{"beta2", "at least 0 and less than 1, such as 0.999", a.Beta2, a.Beta2 >= 0 && a.Beta2 < 1},
		{"eps", "a number of float32 above 0, such as 1e-8", a.Eps, float32(a.Eps) > 0 && a.Eps <= math.MaxFloat32},
		{"weight_decay", "a finite number of at least 0", a.WeightDecay, a.WeightDecay >= 0 && a.WeightDecay <= math.MaxFloat32},
		{"max_grad_norm (grad_clip_norm)", "0 (no clipping) or more", a.MaxGradNorm, a.MaxGradNorm >= 0},
	} {
		if !v.ok {
			return fmt.Errorf("%s: found %v, expected %s", v.name, v.value, v.want)
		}
	}
	return nil
}

// constants returns the settings that are compiled into the program of a step.
func (a Adam) constants() ir.AdamWAttr {
	return ir.AdamWAttr{Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps}
}

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

// Check rejects names of no optimizer.
func (o Optimizer) Check() error {
	if o == "" || o == AdamW || o == AdamW8bit {
		return nil
	}
	return fmt.Errorf("optimizer: %s", suggest.Expected(string(o), []string{string(AdamW), string(AdamW8bit)}))
}

// Bytes returns the size of the optimizer state of a parameter.
func (o Optimizer) Bytes(shape []int) (n int64) {
	for _, m := range o.moments("", shape) {
		n += int64(m.Bytes(nil))
	}
	return n
}

// moment is one tensor of optimizer state for a parameter.
type moment struct {
	name string // in the slot
	ir.Type
}

// moments returns the optimizer state of a parameter.
func (o Optimizer) moments(name string, shape []int) []moment {
	t := ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(shape...)}
	if o != AdamW8bit || t.Shape.Elements(nil) < least8 {
		return []moment{{"moment1." + name, t}, {"moment2." + name, t}}
	}
	codes, scales := ir.Type{DType: tensor.U8, Shape: t.Shape}, ir.AdamW8Scales(t)
	return []moment{{"moment1." + name, codes}, {"moment2." + name, codes}, {"scale1." + name, scales}, {"scale2." + name, scales}}
}

// emit updates a parameter by its gradient times scale.
func (o Optimizer) emit(b *nn.Builder, program *graph.Program, t nn.Trained, grad, rates, scale graph.Tensor, a ir.AdamWAttr) {
	var kept []graph.Tensor
	moments := o.moments(t.Name, t.Shape)
	for _, m := range moments {
		kept = append(kept, b.G.Param(engine.SlotPrefix+m.name, m.DType, m.Shape...))
	}
	w := b.Train(t.Name, t.Shape...)
	var next []graph.Tensor
	if len(moments) > 2 {
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
