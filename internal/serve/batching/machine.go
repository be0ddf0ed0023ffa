package batching

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the programs.
const (
	baseProgram = "base"
	mixProgram  = "mix"
)

// machine holds the model on its device with a paged cache, the adapter slots, and two programs: one
// for the model alone, and one for all adapters. It implements lora.Slots. Only Put, Drop and prepare
// may be called by other goroutines than the engine's.
type machine struct {
	host      *host.Host
	cache     *engine.Cache
	bounds    map[string]int
	page      int // rows per page
	pageBytes int
	results   results
	until     int  // texts up to this length have the same derived tables; 0: all
	rereads   bool // longer texts share tables too, and texts that become longer are read again
	pads      bool // inputs are padded to few sizes
	overlaps  bool // the host works while the device runs

	base  mix  // the model alone
	mix   *mix // with adapters; nil before the first one is loaded
	most  int  // maximum number of adapters per run
	fixed bool // positions for adapters that are loaded only
	// factors is the usual type of factors of adapters.
	factors tensor.DType
	news    func()

	growing sync.Mutex // held while a program is planned and compiled

	mu        sync.Mutex
	slots     map[*lora.Version]*engine.Slot
	dropped   []*engine.Slot // to be freed by the engine's goroutine
	plan      *layout        // of the program that was compiled last; nil if there is none
	ready     *engine.Draft  // that program, until the engine's goroutine takes it
	behind    bool           // a goroutine is compiling a program that running texts wait for
	failed    error          // of that goroutine, for slots
	failedFor []*engine.Slot
	closed    bool
}

// newMachine uploads the weights to the device. It completes the options.
func newMachine(ctx context.Context, dev backend.Device, m *model.Model, o *Options) (*machine, error) {
	x := &machine{host: host.Open(dev, m), page: o.PageRows, most: min(o.MaxTexts, o.Adapters.MaxResident), fixed: o.FixedAdapters, factors: FactorDType(dev.Info()), pads: dev.Info().Replays, overlaps: dev.Info().GPU, slots: map[*lora.Version]*engine.Slot{}, news: func() {}}
	ok := false
	defer func() {
		if !ok {
			x.close()
		}
	}()
	none, err := x.host.NewSlot(nil)
	if err != nil {
		return nil, err
	}
	x.bounds = map[string]int{nn.Tokens: o.MaxBatchTokens, nn.Pages: 1, readInput: o.rows()}
	x.results = newResults(o.rows(), m.Config.VocabSize, Candidates(dev.Info(), dev.Supports, m.Config.VocabSize))
	var tables []nn.Derived
	spec := x.spec("", x.host.NewCache(o.PageRows))
	build := spec.Build
	spec.Build = func(b *nn.Builder, p *graph.Program) {
		build(b, p)
		tables = b.Tables()
	}
	trial, err := x.host.Plan(none, spec)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Changes() && (x.until == 0 || t.Until < x.until) {
			x.until, x.rereads = t.Until, t.Reread
		}
	}
	x.pageBytes = trial.RowBytes() * o.PageRows
	o.size(m, dev.Info().Memory, trial.RowBytes())
	x.bounds[nn.Pages] = o.tables()
	x.cache = x.host.NewCache(o.CacheTokens)
	x.base.slot = none
	if err := x.bring(ctx, &x.base); err != nil {
		return nil, err
	}
	ok = true
	return x, nil
}

// spec describes the program of a step.
func (x *machine) spec(name string, c *engine.Cache) engine.Spec {
	return engine.Spec{Name: name, Bounds: x.bounds, Cache: c, Page: x.page, Build: Build(x.host.Model(), x.results.n)}
}

// bring loads the program of a mix and uploads its adapters, unless they are there.
func (x *machine) bring(ctx context.Context, m *mix) (err error) {
	name := baseProgram
	if m != &x.base {
		name = mixProgram
	}
	if m.slot == nil {
		m.slot = x.host.NewOpenMultiAdapter(m.plan.positions, m.slots...)
		m.program = nil
	}
	defer func() {
		if err != nil && m.plan != nil {
			*m = mix{plan: m.plan, slots: make([]*engine.Slot, len(m.slots))} // the next adapters may have room
		}
	}()
	if ready := m.ready; ready != nil {
		m.ready = nil
		if err := x.host.Keep(ctx, m.slot, ready); err != nil {
			return err
		}
	}
	p, err := x.host.Program(ctx, m.slot, x.spec(name, x.cache))
	if err != nil || p == m.program {
		return err
	}
	x.host.UnloadFunc(func(n string, old *engine.Program) bool { return n == name && old != p })
	if err := p.Bring(ctx, m.slot); err != nil {
		return err
	}
	m.program = p
	return nil
}

// FactorDType returns the type in which a device holds factors of adapters that are only used for inference, if the
// adapters have them in f32.
func FactorDType(d backend.Info) tensor.DType {
	if d.GPU && d.Precision == backend.BF16 { // products round them to it
		return tensor.BF16
	}
	return tensor.F32
}

// newSlot returns a slot for inference with an adapter.
func (x *machine) newSlot(state *lora.State) (*engine.Slot, error) {
	if x.factors != tensor.F32 {
		var err error
		if state, err = state.RoundFactors(x.factors); err != nil {
			return nil, err
		}
	}
	return x.host.NewSlot(state)
}

// Put implements lora.Slots. The parameters are uploaded with the mix that uses them.
func (x *machine) Put(_ context.Context, v *lora.Version) error {
	s, err := x.newSlot(v.State())
	if err != nil {
		return err
	}
	s.Fix()
	x.mu.Lock()
	x.slots[v] = s
	x.mu.Unlock()
	return nil
}

// Drop implements lora.Slots.
func (x *machine) Drop(v *lora.Version) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.slots[v]; s != nil && !x.closed {
		x.dropped = append(x.dropped, s)
		x.news()
	}
	delete(x.slots, v)
}

// slotOf returns the slot of a version that is on the device.
func (x *machine) slotOf(v *lora.Version) *engine.Slot {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.slots[v]
}

// mixOf returns a mix that holds the given slots, or the first of them if there are too few positions.
func (x *machine) mixOf(ctx context.Context, need []*engine.Slot) (*mix, error) {
	if len(need) == 0 {
		return &x.base, nil
	}
	x.mu.Lock()
	if x.plan != nil && (x.mix == nil || x.mix.plan != x.plan) {
		if x.mix != nil {
			x.mix.ready.Drop()
		}
		x.mix = newMix(x.plan)
		x.mix.ready, x.ready = x.ready, nil
	}
	x.mu.Unlock()
	left := need
	if x.mix != nil {
		left = x.mix.assign(need)
	}
	if len(left) > 0 {
		if err := x.growFor(left); err != nil {
			return nil, err
		}
	}
	if len(left) == len(need) {
		return &x.base, nil
	}
	return x.mix, x.bring(ctx, x.mix)
}

// sweep frees dropped slots, whose positions become vacant.
func (x *machine) sweep() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.dropped {
		if x.mix != nil {
			x.mix.leave(s)
		}
		s.Free()
	}
	x.dropped = nil
}

// start starts the run of a batch. On a device that is not the host, it does not wait for the run.
func (x *machine) start(ctx context.Context, m *mix, b *data.Batch, length int) error {
	if err := m.program.Run(ctx, m.slot, b, length); err != nil {
		return fmt.Errorf("batching: %w", err)
	}
	return nil
}

// read waits for the run. It reads the candidates of the first rows, if the program selects some, and the logits of the
// rows that are listed in ascending order.
func (x *machine) read(ctx context.Context, m *mix, rows int, logits []int) error {
	if err := m.program.ReadParts(ctx, x.results.parts(rows, logits)...); err != nil {
		return fmt.Errorf("batching: %w", err)
	}
	x.results.convert(rows)
	return nil
}

// close frees the device memory.
func (x *machine) close() {
	x.growing.Lock() // until nothing is compiled
	defer x.growing.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	x.ready.Drop()
	if x.mix != nil {
		x.mix.ready.Drop()
	}
	x.host.Close()
	x.cache.Free()
	for _, s := range x.dropped {
		s.Free()
	}
	for _, s := range x.slots {
		s.Free()
	}
}
