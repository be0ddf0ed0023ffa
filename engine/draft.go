package engine

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// SlotPrefix begins the names of params that lie in the slot which a program runs
// with.
const SlotPrefix = "slot.0/"

// Parts of an arena, one in so many, that go into leaving activations in f32
// where they may be stored in bf16. The arena of a forward pass is little memory,
// of one layer; most of a training step's is kept from the forward pass.
const (
	spareForward  = 4
	spareTraining = 32
)

// Spec says what a program computes.
type Spec struct {
	Bounds   map[string]int // largest sizes of axes, see nn.Options
	Training bool           // dropout acts
	RowKeys  bool           // it draws by keys of tokens, see nn.Options
	Cache    *Cache         // keys and values of earlier tokens, or nil
	// Whole has each run make again what is made of parameters alone, instead of
	// once whenever they have changed.
	Whole bool
	// Build emits the formulas, and says which are results and updates of p.
	Build func(b *nn.Builder, p *graph.Program)
}

// Draft is a planned program: what it takes is known, and nothing is on the
// device.
type Draft struct {
	Program  *ir.Program
	Segments int          // stretches of the forward pass
	Trained  []nn.Trained // parameters of the slot that it reads

	spec       Spec
	inputs     []nn.Input
	tables     []nn.Derived
	used       []string // weights
	constants  map[string]*tensor.Tensor
	precompute *Draft // what is made of parameters alone, or nil
}

// Plan plans a program that runs with slots like s.
func (r *Runtime) Plan(s *Slot, spec Spec) (*Draft, error) {
	g := graph.New()
	o := nn.Options{Bounds: spec.Bounds, Adapter: s.adapter, Slot: SlotPrefix, Training: spec.Training, RowKeys: spec.RowKeys, Precompute: !spec.Whole}
	if spec.Cache != nil {
		o.Cache = &nn.Cache{Max: spec.Cache.rows}
	}
	b := nn.NewBuilder(g, r.model, o)
	p := g.Program()
	spec.Build(b, p)
	if o.Cache != nil {
		for _, e := range o.Cache.Entries {
			p.Update(e.Param, e.Updated)
		}
		spec.Cache.describe(o.Cache)
	}
	spare := spareForward
	if spec.Training {
		spare = spareTraining
	}
	planned, err := p.Store(r.dev, spare).Plan(r.dev.Supports)
	if err != nil {
		return nil, err
	}
	d := &Draft{
		Program: planned, Segments: b.Segments(), Trained: b.Trained(),
		spec: spec, inputs: b.Inputs(), tables: b.Tables(), used: b.Used(), constants: b.Constants(),
	}
	for _, t := range d.Trained {
		if s.state == nil {
			continue
		}
		if have, want := len(s.state.Values[t.Name]), elements(t.Shape); have != want {
			return nil, fmt.Errorf("engine: the adapter's state has %d elements for %q, expected %d", have, t.Name, want)
		}
	}
	if first := b.Precomputation(); first != nil {
		q := *d
		q.spec = Spec{}
		if q.Program, err = first.Plan(r.dev.Supports); err != nil {
			return nil, err
		}
		d.precompute = &q
	}
	return d, nil
}

// Constants is the number of bytes of what the slot holds beside parameters.
func (d *Draft) Constants() (n int64) {
	for _, c := range d.constants {
		n += int64(len(c.Data))
	}
	if d.precompute != nil {
		for _, a := range d.precompute.Program.Args {
			if a.Written {
				n += int64(a.Bytes(d.precompute.Program.MaxDims()))
			}
		}
	}
	return n
}

// Need is the memory of programs beside their arguments, in bytes.
type Need struct {
	Arena      int64 // of all of them: the largest where they share it
	Precompute int64 // arena of what is made of parameters alone
	Scratch    int64
	Packed     int64 // copies of weights
}

// Need is what the programs of drafts take together.
func (r *Runtime) Need(pack backend.Pack, limit int64, drafts ...*Draft) (n Need, err error) {
	var programs []*ir.Program
	for _, d := range drafts {
		programs = append(programs, d.Program)
	}
	n.Arena = r.arenas(drafts)
	for _, d := range drafts {
		if d.precompute != nil {
			n.Precompute = int64(d.precompute.Program.Arena)
			programs = append(programs, d.precompute.Program)
			break // they all make the same
		}
	}
	if n.Scratch, err = r.scratch(programs); err != nil {
		return n, err
	}
	if r.memory != nil {
		most := r.memory.SetPack(pack, limit)
		if n.Packed, err = r.memory.PackedBytes(pack, programs...); err == nil {
			n.Packed = min(n.Packed, most)
		}
	}
	return n, err
}

// affordable refuses programs that have more to write than the device has memory,
// before any of it is allocated. Errors: backend.ErrOutOfMemory.
func (r *Runtime) affordable(drafts []*Draft) error {
	var programs []*ir.Program
	written := map[string]bool{}
	need := r.arenas(drafts)
	for _, d := range drafts {
		p := d.Program
		programs = append(programs, p)
		for _, a := range p.Args {
			if a.Written && !written[a.Name] {
				written[a.Name] = true
				need += int64(a.Bytes(p.MaxDims()))
			}
		}
	}
	scratch, err := r.scratch(programs)
	if err != nil {
		return err
	}
	need += scratch
	if have := r.dev.Info().Memory; have > 0 && need > have {
		return fmt.Errorf("engine: %w: a run takes %d MiB for what it computes and keeps, the device has %d MiB; fewer tokens take less", backend.ErrOutOfMemory, need>>20, have>>20)
	}
	return nil
}

// arenas is the memory for the arenas of drafts: that of the largest where they
// share one, as the runtime of a device that divides its memory has them do.
func (r *Runtime) arenas(drafts []*Draft) (n int64) {
	for _, d := range drafts {
		if arena := int64(d.Program.Arena); r.memory != nil {
			n = max(n, arena)
		} else {
			n += arena
		}
	}
	return n
}

// scratch is what the device needs beside arenas and arguments to run programs.
func (r *Runtime) scratch(programs []*ir.Program) (int64, error) {
	if r.memory == nil {
		return 0, nil
	}
	return r.memory.Scratch(programs...)
}

// local is the name that a param of a slot has there.
func local(param string) (name string, ok bool) { return strings.CutPrefix(param, SlotPrefix) }

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
