package trainer

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// FewestRecomputed returns the smallest number of recomputed layers, from least on, with which
// a plan fits its memory, or layers if none fits. It calls fits for the returned number, too.
//
// Recomputation costs up to one more forward pass and leaves the result identical. The first
// layers are recomputed: their activations would be kept longest, and when they are recomputed
// those of the others have been freed.
func FewestRecomputed(least, layers int, fits func(n int) (bool, error)) (int, error) {
	var fail error
	try := func(n int) bool {
		ok, err := fits(n)
		if err != nil {
			fail = err
		}
		return ok || fail != nil
	}
	n := layers
	if try(n) && least < n {
		n = least + sort.Search(n-least, func(i int) bool { return try(least + i) })
	}
	return n, fail
}

// compile returns the program of a pass.
func (t *Trainer) compile(ctx context.Context, p *Pass) (*engine.Program, error) {
	spec, ok := t.specs[p.Name]
	if !ok {
		var err error
		if spec, err = t.fit(p); err != nil {
			return nil, err
		}
	}
	program, err := t.host.Program(ctx, t.slot, spec)
	if errors.Is(err, backend.ErrOutOfMemory) && !p.Forward {
		spec = t.recomputing(p, allLayers)
		program, err = t.host.Program(ctx, t.slot, spec)
	}
	t.specs[p.Name] = spec
	return program, err
}

const allLayers = -1

// recomputing returns the program of a pass that recomputes the first n layers.
func (t *Trainer) recomputing(p *Pass, n int) engine.Spec {
	lean := *p
	if n != 0 && !p.Forward {
		lean.Gradients = ir.GradOptions{Checkpoint: true, Segments: max(0, n)}
	}
	return lean.Spec(t.host.Model())
}

// fit returns the program of a pass that recomputes as few layers as fit the memory budget.
func (t *Trainer) fit(p *Pass) (engine.Spec, error) {
	if t.plan.Memory == 0 {
		return t.recomputing(p, 0), nil
	}
	layers, needs := 0, map[int]int64{}
	fits := func(n int) (bool, error) {
		d, err := t.host.Plan(t.slot, t.recomputing(p, n))
		if err != nil {
			return false, err
		}
		layers = d.Segments
		need, err := t.host.Takes([]*engine.Draft{d})
		needs[n] = need + t.plan.bytes()
		return needs[n] <= t.plan.Memory, err
	}
	n := 0
	ok, err := fits(n)
	if !ok && err == nil && !p.Forward && layers > 0 {
		n, err = FewestRecomputed(1, layers, fits)
	}
	if more := needs[n] - t.plan.Memory; err == nil && more > 0 {
		err = fmt.Errorf("%w: the adapter and a pass of at most %d tokens take %s with %d of %d layers recomputed, %s more than the memory budget of %s; shorter data take less",
			backend.ErrOutOfMemory, p.Bounds[nn.Tokens], bytesize.Binary(needs[n]), n, layers, bytesize.Binary(more), bytesize.Binary(t.plan.Memory))
	}
	return t.recomputing(p, n), err
}

// bytes returns the memory of the trained parameters, their gradients and moments.
func (p *Plan) bytes() (n int64) {
	for _, t := range p.Trained {
		n += 8*int64(ir.ShapeOf(t.Shape...).Elements(nil)) + p.Optimizer.Bytes(t.Shape)
	}
	return n
}
