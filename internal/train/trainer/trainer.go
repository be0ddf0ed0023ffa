// Package trainer trains one adapter: it accumulates the gradients of losses, performs the
// steps of an optimizer, and saves and loads its state. Runs of a configuration, jobs that
// share passes and sessions of clients are loops around a [Trainer].
package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors of steps and checkpoints.
var (
	// ErrNotFinite is wrapped if a loss or a gradient is NaN or infinite.
	ErrNotFinite = errors.New("not finite")
	// ErrCheckpoint is wrapped if a checkpoint cannot be loaded.
	ErrCheckpoint = errors.New("unusable checkpoint")
)

// Trainer trains the adapter in one slot of a host. The slot holds gradients, sums and moments
// next to the adapter. Only one goroutine at a time may use a trainer. Trainers of the same host
// may be used concurrently: each call locks the host.
type Trainer struct {
	host  *host.Host
	slot  *engine.Slot
	plan  Plan
	step  stepInputs
	specs map[string]engine.Spec // by the names of passes
}

// New returns a trainer of the adapter in a slot of a host, which compiles and caches programs
// when they are first needed.
func New(h *host.Host, s *engine.Slot, p Plan) *Trainer {
	size := 1
	for _, x := range p.Sums {
		size += x.Size
	}
	t := &Trainer{host: h, slot: s, plan: p, specs: map[string]engine.Spec{}}
	t.step.report = make([]float32, size)
	if p.Optimizer == AdamW8bit {
		t.step.maps = ir.AdamW8MapValues()
	}
	return t
}

// Trained lists the trained parameters.
func (t *Trainer) Trained() []nn.Trained { return t.plan.Trained }

// Prepare compiles the program of a step, and uploads the adapter and its optimizer state to
// the device.
func (t *Trainer) Prepare(ctx context.Context, a Adam) error {
	t.host.Lock()
	defer t.host.Unlock()
	_, err := t.host.Programs(ctx, t.slot, t.stepSpec(a))
	return err
}

// stepSpec returns the program of a step, which it keeps until the constants change.
func (t *Trainer) stepSpec(a Adam) engine.Spec {
	if c := a.constants(); t.step.spec.Name == "" || t.step.constants != c {
		t.step.spec, t.step.constants = t.plan.Step(a), c
	}
	return t.step.spec
}

// Output is the destination of a result of a pass.
type Output struct {
	Result string
	To     []float32
}

// Compute runs a pass on a batch, whose longest text has length tokens, and copies results of
// it. Unless the pass is Forward, it adds to the gradients and sums. If it exceeds
// [Plan.Memory], this and later runs of the pass recompute as few layers as fit, and if the
// device has too little memory, all layers. Both leave every bit unchanged. begun reports
// whether the gradients may have changed in spite of an error.
func (t *Trainer) Compute(ctx context.Context, p *Pass, batch nn.Arrays, length int, outputs ...Output) (begun bool, err error) {
	t.host.Lock()
	defer t.host.Unlock()
	program, err := t.compile(ctx, p)
	if err != nil {
		return false, err
	}
	if err := program.Run(ctx, t.slot, batch, length); err != nil {
		return true, err
	}
	for _, o := range outputs {
		if err := program.Read(ctx, o.Result, o.To); err != nil {
			return true, err
		}
	}
	if t.plan.Shared {
		err = t.host.Wait()
	}
	return true, err
}

// Gradient copies the gradient of a trained parameter since the last step: the sum over all
// batches.
func (t *Trainer) Gradient(ctx context.Context, name string, dst []float32) error {
	t.host.Lock()
	defer t.host.Unlock()
	return t.host.ReadSlot(ctx, t.slot, gradient(name), dst)
}

// Clear sets the gradients to zero.
func (t *Trainer) Clear(ctx context.Context) error {
	t.host.Lock()
	defer t.host.Unlock()
	var zero []byte
	for _, x := range t.plan.Trained {
		n := 4 * ir.ShapeOf(x.Shape...).Elements(nil)
		zero = append(zero, make([]byte, max(0, n-len(zero)))...)
		if err := t.slot.SetBytes(ctx, gradient(x.Name), zero[:n]); err != nil {
			return err
		}
	}
	return nil
}

// Values copies the trained parameters into the slices of dst, or into new slices of those that
// dst lacks. It fails if check, which may be nil and is called concurrently, fails for one.
func (t *Trainer) Values(ctx context.Context, dst map[string][]float32, check func(name string, x []float32) error) error {
	t.host.Lock()
	defer t.host.Unlock()
	copies := make([][]float32, len(t.plan.Trained))
	err := t.host.ReadSlots(ctx, t.slot, t.plan.Trained, func(i int, x []float32) error {
		name := t.plan.Trained[i].Name
		if to, ok := dst[name]; ok {
			copy(to, x)
		} else {
			copies[i] = slices.Clone(x) // unlike make, it does not clear the memory first
		}
		if check == nil {
			return nil
		}
		return check(name, x)
	})
	for i, x := range copies {
		if x != nil {
			dst[t.plan.Trained[i].Name] = x
		}
	}
	return err
}

// SetValues is the inverse of Values.
func (t *Trainer) SetValues(ctx context.Context, values map[string][]float32) error {
	t.host.Lock()
	defer t.host.Unlock()
	t.slot.Changed()
	for _, x := range t.plan.Trained {
		if err := t.slot.Set(ctx, x.Name, values[x.Name]); err != nil {
			return err
		}
	}
	return nil
}

// Moments are tensors of optimizer state by name.
type Moments map[string]tensor.Tensor

// Moments returns a copy of the optimizer state.
func (t *Trainer) Moments(ctx context.Context) (Moments, error) {
	t.host.Lock()
	defer t.host.Unlock()
	out := Moments{}
	return out, t.eachMoment(func(m moment) error {
		x, err := tensor.New(m.DType, m.Shape.Resolve(nil)...)
		if err != nil {
			return err
		}
		out[m.name] = x
		return t.host.ReadSlotBytes(ctx, t.slot, m.name, x.Data)
	})
}

// Matches rejects moments of other parameters or of another optimizer.
func (t *Trainer) Matches(moments Moments) error {
	return t.eachMoment(func(m moment) error {
		x, ok := moments[m.name]
		if n := m.Shape.Elements(nil); !ok || x.DType != m.DType || x.NumElements() != n {
			return fmt.Errorf("the moments have %v %v for %q, expected %v %v", x.DType, x.Shape, m.name, m.DType, m.Shape)
		}
		return nil
	})
}

// SetMoments is the inverse of Moments; nil sets the state before the first step. Moments that
// do not match change nothing.
func (t *Trainer) SetMoments(ctx context.Context, moments Moments) error {
	if moments != nil {
		if err := t.Matches(moments); err != nil {
			return err
		}
	}
	t.host.Lock()
	defer t.host.Unlock()
	return t.eachMoment(func(m moment) error {
		if moments == nil {
			return t.slot.SetBytes(ctx, m.name, make([]byte, m.Bytes(nil)))
		}
		return t.slot.SetBytes(ctx, m.name, moments[m.name].Data)
	})
}

func (t *Trainer) eachMoment(do func(moment) error) error {
	for _, x := range t.plan.Trained {
		for _, m := range t.plan.Optimizer.moments(x.Name, x.Shape) {
			if err := do(m); err != nil {
				return err
			}
		}
	}
	return nil
}
