package engine

import (
	"context"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Runtime is a model on a device. It is not safe for concurrent use, except for Beside, Plan
// and Prepare.
type Runtime struct {
	dev         backend.Device
	memory      backend.Memory // the device, or nil if its memory cannot be planned
	model       *model.Model
	params      nn.Weights // the model's, as the device reads them
	weights     *weights   // nil once it is closed
	store       *Store     // tables
	results     []*result
	programs    []*Program // that are loaded
	precomputes []*Program // programs that compute values from parameters alone
	launch      func(context.Context) (over func())

	mu     sync.Mutex // guards the fields below, which Prepare uses concurrently
	arenas []*arena
}

// New returns a runtime with nothing uploaded yet. m must stay open until the runtime is
// closed.
func New(dev backend.Device, m *model.Model) *Runtime {
	return with(&weights{store: NewStore(dev)}, dev, m, nil)
}

// Beside returns a second runtime of the same model on the same device. The two share weights
// and nothing else, so each may be used by its own goroutine. Closing the last one frees the
// weights. r must be open.
//
// If launch is not nil, runs of the new runtime call it before each kernel launch with their
// context. It may wait while others use the device; the launch calls the returned function
// when it ends. See [backend.WithYield].
func (r *Runtime) Beside(launch func(context.Context) (over func())) *Runtime {
	return with(r.weights, r.dev, r.model, launch)
}

func with(w *weights, dev backend.Device, m *model.Model, launch func(context.Context) (over func())) *Runtime {
	r := &Runtime{dev: dev, model: m, params: m, weights: w.share(), store: NewStore(dev), launch: launch}
	if dev.Info().Blocks {
		r.params = m.InBlocks()
	}
	r.memory, _ = dev.(backend.Memory)
	return r
}

// Model returns the model that the runtime runs.
func (r *Runtime) Model() *model.Model { return r.model }

// Params returns the model's weights in the types that the device reads.
func (r *Runtime) Params() nn.Weights { return r.params }

// Device returns the device that the runtime runs on.
func (r *Runtime) Device() backend.Device { return r.dev }

// Info describes the device.
func (r *Runtime) Info() backend.Info { return r.dev.Info() }

// Bytes returns the device memory of weights, tables and results, without that of inputs,
// arenas and slots.
func (r *Runtime) Bytes() int {
	n := r.weights.bytes() + r.store.Bytes()
	for _, x := range r.results {
		n += x.buffer.Size()
	}
	return n
}

// Close frees the device's memory, except that of slots, caches and weights shared with
// another runtime. Closing twice does nothing.
func (r *Runtime) Close() {
	if r.weights == nil {
		return
	}
	r.Unload(slices.Clone(r.programs)...)
	for _, p := range r.precomputes {
		p.close()
	}
	r.precomputes = nil
	r.store.Free()
	r.weights.release()
	r.weights = nil
}

// Load compiles the programs of drafts, which share an arena. It uploads the adapter of the
// slot, and the weights and tables that are not on the device yet. old may list programs to be
// replaced; a program of old with the same plan is reused.
func (r *Runtime) Load(ctx context.Context, s *Slot, old []*Program, drafts ...*Draft) (ps []*Program, err error) {
	all := make([]Placed, len(drafts))
	for i, d := range drafts {
		all[i] = Placed{s, d}
	}
	return r.LoadAll(ctx, old, all...)
}

// Placed is a draft, and a slot that its program runs with.
type Placed struct {
	Slot  *Slot
	Draft *Draft
}

// LoadAll loads programs of several slots, as Load does. Drafts with equal plans share one
// program.
func (r *Runtime) LoadAll(ctx context.Context, old []*Program, all ...Placed) (ps []*Program, err error) {
	defer func() {
		if err != nil {
			r.Unload(without(ps, old)...)
			ps = nil
		}
	}()
	var fresh []*Draft
	for _, x := range all {
		if x.Draft.ahead == nil && find(old, x.Draft) == nil {
			fresh = append(fresh, x.Draft)
		}
	}
	if err := r.affordable(fresh); err != nil {
		return nil, err
	}
	shared, err := r.arena(fresh)
	if err != nil {
		return nil, err
	}
	defer r.release(shared)
	for _, x := range all {
		s, d := x.Slot, x.Draft
		p := find(old, d)
		if p == nil {
			p = find(ps, d)
		}
		if p == nil {
			if p, err = r.compile(d, shared); err != nil {
				return ps, err
			}
			r.programs = append(r.programs, p)
		} else if !p.Fits(s) {
			p.shapes = append(p.shapes, d.shapes)
		}
		ps = append(ps, p)
		if err = r.fill(ctx, s, d, p); err != nil {
			return ps, err
		}
	}
	return ps, nil
}

// Prepare compiles the program of a draft ahead of time; the next Load of the draft uses it.
// Another goroutine may call it while the runtime is in use. It returns the same errors as
// Load.
func (r *Runtime) Prepare(d *Draft) error {
	if err := r.affordable([]*Draft{d}); err != nil {
		return err
	}
	shared, err := r.arena([]*Draft{d})
	if err != nil {
		return err
	}
	defer r.release(shared)
	d.ahead, err = r.program(d, shared)
	return err
}

// Drop frees the result of Prepare if the draft was not loaded. It does nothing for a nil
// draft.
func (d *Draft) Drop() {
	if d != nil && d.ahead != nil {
		d.ahead.close()
		d.ahead = nil
	}
}

// find returns the program in ps with the same plan as d, or nil.
func find(ps []*Program, d *Draft) *Program {
	for _, p := range ps {
		if p.draft.spec.Cache == d.spec.Cache && len(p.draft.precompute) == len(d.precompute) && reflect.DeepEqual(p.draft.Program, d.Program) {
			return p
		}
	}
	return nil
}

// without returns ps without the programs in old.
func without(ps, old []*Program) []*Program {
	return slices.DeleteFunc(slices.Clone(ps), func(p *Program) bool { return slices.Contains(old, p) })
}

// compile returns the program of a draft: the prepared one or a new one, in the shared arena
// or with its own.
func (r *Runtime) compile(d *Draft, shared *arena) (p *Program, err error) {
	if p, d.ahead = d.ahead, nil; p == nil {
		if p, err = r.program(d, shared); err != nil {
			return nil, err
		}
	}
	p.precompute = make([]*Program, len(d.precompute))
	for i, first := range d.precompute {
		if first == nil {
			continue
		}
		if p.precompute[i] = find(r.precomputes, first); p.precompute[i] == nil {
			if p.precompute[i], err = r.compile(first, nil); err != nil {
				p.close()
				return nil, err
			}
			r.precomputes = append(r.precomputes, p.precompute[i])
		}
	}
	return p, nil
}

// program compiles a draft, without the programs that have to run before it.
func (r *Runtime) program(d *Draft, shared *arena) (*Program, error) {
	p := &Program{r: r, draft: d, shapes: [][]string{d.shapes}}
	var within backend.Buffer
	if shared != nil {
		within = shared.buffer
	}
	var err error
	if p.exe, err = exec.Load(d.Program, r.dev, within); err != nil {
		return nil, err
	}
	p.arena = r.hold(shared)
	if err := p.inputs.lay(r, p.exe, d); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// fill uploads the arguments of a program.
func (r *Runtime) fill(ctx context.Context, s *Slot, d *Draft, p *Program) error {
	var used []string
	for _, x := range append(d.first(), d) {
		for _, name := range d.used {
			if x.Program.ArgIndex(name) >= 0 {
				used = append(used, name)
			}
		}
	}
	if err := s.fill(ctx, d); err != nil {
		return err
	}
	if err := r.weights.bring(ctx, r.params, used); err != nil {
		return err
	}
	for _, t := range d.tables {
		if t.Changes() || !p.exe.Uses(t.Name) || r.store.Buffer(t.Name) != nil {
			continue
		}
		if err := r.store.SetFloat32s(ctx, t.Name, t.Values(1)); err != nil {
			return err
		}
	}
	return p.bind(s)
}

// Unload frees programs, and their arena with the last that uses it.
func (r *Runtime) Unload(ps ...*Program) {
	for _, p := range ps {
		if !slices.Contains(r.programs, p) {
			continue // one of several drafts
		}
		p.close()
		r.programs = slices.DeleteFunc(r.programs, func(x *Program) bool { return x == p })
	}
}

// Commit seals the pending runs, so that they complete even if their contexts end. Call it
// before work that depends on all of them. If a run was already canceled, Commit waits for all
// runs and returns the error of its context.
func (r *Runtime) Commit() error {
	for _, ps := range r.all() {
		for _, p := range ps {
			if !p.runs.seal() {
				return r.settle()
			}
		}
	}
	return nil
}

// Wait waits for all pending runs and returns their error.
func (r *Runtime) Wait() error { return r.settle() }

// ReadSlot waits for all pending runs and copies the first len(dst) elements of a tensor of a
// slot. It also returns errors of the runs.
func (r *Runtime) ReadSlot(ctx context.Context, s *Slot, name string, dst []float32) error {
	return r.ReadSlotBytes(ctx, s, name, tensor.BytesOf(dst))
}

// ReadSlotBytes reads elements of any type, in their memory layout, as ReadSlot does.
func (r *Runtime) ReadSlotBytes(ctx context.Context, s *Slot, name string, dst []byte) error {
	err := s.store.Get(ctx, name, dst)
	if failed := r.settle(); failed != nil {
		return failed
	}
	return err
}

// ReadSlots waits for all pending runs and calls use for each of some float32 tensors of a
// slot, on all cores. x is a copy that is valid during the call.
func (r *Runtime) ReadSlots(ctx context.Context, s *Slot, tensors []nn.Trained, use func(i int, x []float32) error) error {
	if err := r.settle(); err != nil {
		return err
	}
	var next atomic.Int64
	return together(slices.Repeat([]func() error{func() error {
		var x []float32
		for {
			i := int(next.Add(1)) - 1
			if i >= len(tensors) {
				return nil
			}
			n := elements(tensors[i].Shape)
			x = slices.Grow(x[:0], n)[:n]
			if err := s.store.GetFloat32s(ctx, tensors[i].Name, x); err != nil {
				return err
			}
			if err := use(i, x); err != nil {
				return err
			}
		}
	}}, runtime.GOMAXPROCS(0)))
}

// settle waits for all runs. Errors: that of the first program one of whose runs has
// failed.
func (r *Runtime) settle() (err error) {
	for _, ps := range r.all() {
		for _, p := range ps {
			if e := p.runs.settle(); err == nil {
				err = e
			}
		}
	}
	return err
}

// all returns the programs. Programs whose results others depend on come first.
func (r *Runtime) all() [2][]*Program { return [2][]*Program{r.precomputes, r.programs} }
