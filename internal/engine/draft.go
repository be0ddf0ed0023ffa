package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// SlotPrefix is the prefix of params stored in the slot that a program runs with, or in the
// first part of a mix.
const SlotPrefix = "slot.0/"

// slotPrefix returns the prefix of params in slot number i.
func slotPrefix(i int) string { return "slot." + strconv.Itoa(i) + "/" }

// These are the reciprocals of the share of an arena that may be spent on keeping activations
// in f32 instead of bf16. The arena of a forward pass is small, since it holds one layer; most
// of a training step's arena holds activations saved for the backward pass.
const (
	spareForward  = 4
	spareTraining = 48
)

// Spec describes a program to compile.
type Spec struct {
	Name     string         // identifies the program in package host
	Bounds   map[string]int // largest sizes of axes, see nn.Options
	Training bool           // dropout acts
	RowKeys  bool           // dropout uses a key for each token, see nn.Options
	Cache    *Cache         // keys and values of earlier tokens, or nil
	// Page is the number of rows of a page if the cache is paged; see nn.Cache.
	Page int
	// Whole recomputes values that depend only on parameters (norms of weights) in every run,
	// instead of after each parameter change.
	Whole bool
	// FixedSizes declares that activations have no bounded axis, because the program is for one
	// size of image; see graph.Program.FixedSizes.
	FixedSizes bool
	// Build emits the graph, and adds results and updates to p.
	Build func(b *nn.Builder, p *graph.Program)
}

// Draft is a planned program. Its memory requirements are known; nothing is on the device yet.
type Draft struct {
	Program  *ir.Program
	Segments int          // number of segments of the forward pass
	Trained  []nn.Trained // parameters of the slots that it reads

	spec       Spec
	args       []arg // of Program.Args
	inputs     []nn.Input
	tables     []nn.Derived
	used       []string // weights
	constants  map[string]*tensor.Tensor
	shapes     []string // of the adapters of its slots
	precompute []*Draft // for each slot, the program that computes values from parameters alone, or nil
	ahead      *Program // see Prepare
}

// Plan plans a program that runs with slots like s. Once a program has been planned with
// the cache of spec, others may be by other goroutines, while the runtime is in use.
func (r *Runtime) Plan(s *Slot, spec Spec) (*Draft, error) {
	g := graph.New()
	o := nn.Options{Bounds: spec.Bounds, Adapter: s.adapter, Training: spec.Training, RowKeys: spec.RowKeys, Precompute: !spec.Whole}
	for i := range s.parts {
		o.Slots = append(o.Slots, slotPrefix(i))
	}
	if spec.Cache != nil {
		o.Cache = &nn.Cache{Max: spec.Cache.rows, Page: spec.Page}
	}
	b := nn.NewBuilder(g, r.params, o)
	p := g.Program()
	spec.Build(b, p)
	if spec.FixedSizes {
		p.FixedSizes()
	}
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
	invariant := r.dev.Info().BatchInvariant
	if !invariant { // which values are stored depends on all that a program computes
		p.StoreBF16(r.dev, spare)
	}
	planned, err := p.FixSumOrder(invariant).Plan(r.dev.Supports)
	if err != nil {
		return nil, err
	}
	d := &Draft{
		Program: planned, Segments: b.Segments(), Trained: b.Trained(),
		spec: spec, inputs: b.Inputs(), tables: b.Tables(), used: b.Used(), constants: b.Constants(),
		precompute: make([]*Draft, len(s.parts)),
	}
	if err := d.check(s); err != nil {
		return nil, err
	}
	d.shapes, d.args = s.shapes, argsOf(planned)
	for i := range s.parts {
		if d.precompute[i], err = r.planFirst(d, b, i); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// check refuses a slot whose adapter has tensors of other sizes than the program reads.
func (d *Draft) check(s *Slot) error {
	for _, t := range d.Trained {
		slot, _, ok := local(t.Param)
		if !ok || s.parts[slot].state == nil {
			continue
		}
		if have, want := len(s.parts[slot].state.Values[t.Name]), elements(t.Shape); have != want {
			return fmt.Errorf("engine: the adapter's state has %d elements for %q, expected %d", have, t.Name, want)
		}
	}
	return nil
}

// planFirst plans the program that computes values from the parameters of one slot alone. It
// returns nil if there are no such values. The program runs with that slot. It is shared by
// slots whose adapters have the same shape, and by main programs, whatever axes they read.
func (r *Runtime) planFirst(d *Draft, b *nn.Builder, slot int) (*Draft, error) {
	first := b.Precomputation(slot)
	if first == nil {
		return nil, nil
	}
	q := *d
	q.spec, q.shapes, q.precompute = Spec{}, nil, nil
	var err error
	if q.Program, err = first.Plan(r.dev.Supports); err != nil {
		return nil, err
	}
	q.Program.Bounds = q.Program.Bounds[:1] // nothing of a batch is in it
	for i := range q.Program.Args {
		a := &q.Program.Args[i]
		if _, name, ok := local(a.Name); ok {
			a.Name = SlotPrefix + name
		}
	}
	q.Program.IndexArgs()
	q.args = argsOf(q.Program)
	return &q, nil
}

// Spec returns the description that the program was planned from.
func (d *Draft) Spec() Spec { return d.spec }

// Fits reports whether the program will run with a slot; see [Program.Fits].
func (d *Draft) Fits(s *Slot) bool { return slices.Equal(d.shapes, s.shapes) }

// arg says where the buffer of an argument is.
type arg struct {
	part   int    // of the slot, or -1
	name   string // in the part
	factor *lora.Factor
}

func argsOf(p *ir.Program) []arg {
	args := make([]arg, len(p.Args))
	for i := range p.Args {
		part, name, ok := local(p.Args[i].Name)
		if args[i] = (arg{part: part, name: name}); !ok {
			args[i].part = -1
		} else if f, ok := lora.ParseFactor(name); ok {
			args[i].factor = &f
		}
	}
	return args
}

// Reads reports whether runs are given an input of that name.
func (d *Draft) Reads(input string) bool {
	return slices.ContainsFunc(d.inputs, func(in nn.Input) bool { return in.Name == input })
}

// ByLength reports whether tables depend on the longest text of a batch.
func (d *Draft) ByLength() bool { return slices.ContainsFunc(d.tables, nn.Derived.Changes) }

// Constants returns the bytes that the slots hold in addition to parameters.
func (d *Draft) Constants() (n int64) {
	for _, c := range d.constants {
		n += int64(len(c.Data))
	}
	for _, first := range d.first() {
		n += written(first)
	}
	return n
}

// written returns the bytes of the results of programs, which share results of one name and size.
func written(drafts ...*Draft) (n int64) {
	type result struct {
		name  string
		bytes int
	}
	counted := map[result]bool{}
	for _, d := range drafts {
		dims := d.Program.MaxDims()
		for _, a := range d.Program.Args {
			if r := (result{a.Name, a.Bytes(dims)}); a.Written && !counted[r] {
				counted[r] = true
				n += int64(r.bytes)
			}
		}
	}
	return n
}

// first returns the drafts of the programs that compute values from parameters alone.
func (d *Draft) first() (all []*Draft) {
	for _, first := range d.precompute {
		if first != nil {
			all = append(all, first)
		}
	}
	return all
}

// Need is the memory of programs in bytes, without their arguments.
type Need struct {
	Arena      int64 // of all programs: the largest arena if they share it
	Precompute int64 // arena of the programs that compute values from parameters alone
	Scratch    int64
}

// Need returns the memory that the programs of drafts need together.
func (r *Runtime) Need(drafts ...*Draft) (n Need, err error) {
	n.Arena = r.arenaBytes(drafts)
	all := programs(drafts)
	for _, first := range all[len(drafts):] {
		n.Precompute += int64(first.Arena)
	}
	n.Scratch, err = r.scratch(all)
	return n, err
}

// Takes returns the memory of programs without weights, in bytes: arenas, scratch, inputs and
// results. Each element of loads lists drafts that are loaded together; it adds no arena if an
// earlier one is large enough. Values computed from parameters alone are counted once.
func (r *Runtime) Takes(loads ...[]*Draft) (n int64, err error) {
	constants, largest := int64(0), int64(0)
	n = written(slices.Concat(loads...)...)
	for _, drafts := range loads {
		need, err := r.Need(drafts...)
		if err != nil {
			return 0, err
		}
		if n += need.Precompute + need.Scratch; need.Arena > largest || r.memory == nil {
			n += need.Arena
			largest = need.Arena
		}
		for _, d := range drafts {
			constants = max(constants, d.Constants())
			n += d.given()
		}
	}
	return n + constants, nil
}

// given returns the bytes of inputs.
func (d *Draft) given() (n int64) {
	dims := d.Program.MaxDims()
	for _, in := range d.inputs {
		n = (n+backend.PartAlign-1)/backend.PartAlign*backend.PartAlign + int64(in.Type.Bytes(dims))
	}
	return n
}

// Weights returns the bytes of the weights that a draft reads.
func (r *Runtime) Weights(d *Draft) (n int64) {
	for _, name := range d.used {
		if w, err := r.params.Weight(name); err == nil {
			n += int64(w.Size())
		}
	}
	return n
}

// Pack lets the device keep repacked copies of weights, of at most limit bytes, for programs
// compiled afterwards. It returns the bytes that the copies for the programs of drafts take.
func (r *Runtime) Pack(mode backend.Pack, limit int64, drafts ...*Draft) (int64, error) {
	if r.memory == nil {
		return 0, nil
	}
	most := r.memory.SetPack(mode, limit)
	n, err := r.memory.PackedBytes(mode, programs(drafts)...)
	return min(n, most), err
}

// programs returns the programs of drafts, followed by the distinct programs that compute
// values from parameters alone for them.
func programs(drafts []*Draft) (all []*ir.Program) {
	for _, d := range drafts {
		all = append(all, d.Program)
	}
	for _, d := range drafts {
		for _, f := range d.first() {
			if !slices.ContainsFunc(all[len(drafts):], func(p *ir.Program) bool { return reflect.DeepEqual(p, f.Program) }) {
				all = append(all, f.Program)
			}
		}
	}
	return all
}

// affordable refuses programs that have more to write than the device has memory,
// before any of it is allocated. Errors: backend.ErrOutOfMemory.
func (r *Runtime) affordable(drafts []*Draft) error {
	var programs []*ir.Program
	for _, d := range drafts {
		programs = append(programs, d.Program)
	}
	scratch, err := r.scratch(programs)
	if err != nil {
		return err
	}
	need := r.arenaBytes(drafts) + written(drafts...) + scratch
	if have := r.dev.Info().Memory; have > 0 && need > have {
		return fmt.Errorf("engine: %w: a run takes %d MiB for what it computes and keeps, the device has %d MiB; fewer tokens take less", backend.ErrOutOfMemory, need>>20, have>>20)
	}
	return nil
}

// arenaBytes returns the memory for the arenas of drafts. Drafts share the largest arena if
// the device's memory can be planned; otherwise each has its own.
func (r *Runtime) arenaBytes(drafts []*Draft) (n int64) {
	for _, d := range drafts {
		if arena := int64(d.Program.Arena); r.memory != nil {
			n = max(n, arena)
		} else {
			n += arena
		}
	}
	return n
}

// scratch returns the memory that the device needs to run programs, in addition to arenas and
// arguments.
func (r *Runtime) scratch(programs []*ir.Program) (int64, error) {
	if r.memory == nil {
		return 0, nil
	}
	return r.memory.Scratch(programs...)
}

// local splits the name of a param stored in a slot into the slot's number and the name within
// the slot.
func local(param string) (slot int, name string, ok bool) {
	rest, ok := strings.CutPrefix(param, "slot.")
	if !ok {
		return 0, "", false
	}
	number, name, ok := strings.Cut(rest, "/")
	slot, err := strconv.Atoi(number)
	return slot, name, ok && err == nil
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
