package batching

import (
	"context"
	"fmt"
	"slices"
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

// Input and result of the programs: indices of the tokens whose logits are computed, i32 [read],
// and the logits, f32 [read, vocab].
const (
	readInput    = "read"
	logitsResult = "logits"
)

// machine holds the model on its device with a paged cache, the adapter slots, and the programs for
// combinations of adapters. It implements lora.Slots. Only Put and Drop may be called by other
// goroutines than the engine's.
type machine struct {
	host      *host.Host
	cache     *engine.Cache
	bounds    map[string]int
	page      int // rows per page
	pageBytes int
	none      *engine.Slot
	logits    []float32
	until     int // texts up to this length have the same derived tables; 0: all

	base   *mix
	mixes  []*mix  // most recently used first
	coming *coming // being prepared, or nil
	news   func()  // called by other goroutines when coming is ready and when slots are dropped

	mu      sync.Mutex
	slots   map[*lora.Version]*engine.Slot
	dropped []*engine.Slot // to be freed by the engine's goroutine
	closed  bool
}

// mix is a program with its adapter slots.
type mix struct {
	program *engine.Program
	slot    *engine.Slot // combined slot of the seats; nil if it must be rebuilt
	seats   []seat
}

// seat holds an adapter of one shape. slot is nil while the seat is vacant.
type seat struct {
	slot  *engine.Slot
	shape string
}

// seatOf returns the index of the seat that holds a slot, or -1.
func (m *mix) seatOf(s *engine.Slot) int {
	return slices.IndexFunc(m.seats, func(o seat) bool { return o.slot == s })
}

func slotsOf(seats []seat) (slots []*engine.Slot) {
	for _, s := range seats {
		slots = append(slots, s.slot)
	}
	return slots
}

// maxMixes is the maximum number of cached programs besides the one of the base model.
const maxMixes = 4

// newMachine uploads the weights to the device. It completes the options.
func newMachine(ctx context.Context, dev backend.Device, m *model.Model, o *Options) (*machine, error) {
	x := &machine{host: host.Open(dev, m), page: o.PageRows, slots: map[*lora.Version]*engine.Slot{}}
	ok := false
	defer func() {
		if !ok {
			x.close()
		}
	}()
	var err error
	if x.none, err = x.host.NewSlot(nil); err != nil {
		return nil, err
	}
	x.bounds = map[string]int{nn.Tokens: o.MaxBatchTokens, nn.Pages: 1, readInput: o.rows()}
	trial, tables, err := x.plan(x.none, x.host.NewCache(o.PageRows))
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Changes() && (x.until == 0 || t.Until < x.until) {
			x.until = t.Until
		}
	}
	x.pageBytes = trial.RowBytes() * o.PageRows
	o.size(m, dev.Info().Memory, trial.RowBytes())
	x.bounds[nn.Pages] = o.tables()
	x.cache = x.host.NewCache(o.CacheTokens)
	x.logits = make([]float32, o.rows()*m.Config.VocabSize)
	if x.base, err = x.load(ctx, x.none); err != nil {
		return nil, err
	}
	ok = true
	return x, nil
}

// plan plans the program that computes logits, and returns the derived tables that it uses.
func (x *machine) plan(s *engine.Slot, c *engine.Cache) (d *engine.Draft, tables []nn.Derived, err error) {
	d, err = x.host.Plan(s, engine.Spec{Bounds: x.bounds, Cache: c, Page: x.page, Build: func(b *nn.Builder, p *graph.Program) {
		p.Result(logitsResult, x.host.Model().Build(b).Logits(b, b.Input(readInput, tensor.I32, b.Axis(readInput))))
		tables = b.Tables()
	}})
	return d, tables, err
}

func (x *machine) load(ctx context.Context, s *engine.Slot, seats ...seat) (*mix, error) {
	d, _, err := x.plan(s, x.cache)
	if err != nil {
		return nil, err
	}
	return x.take(ctx, d, s, seats)
}

// take loads a planned program.
func (x *machine) take(ctx context.Context, d *engine.Draft, s *engine.Slot, seats []seat) (*mix, error) {
	ps, err := x.host.Load(ctx, s, nil, d)
	if err != nil {
		return nil, err
	}
	return &mix{ps[0], s, seats}, nil
}

// Put implements lora.Slots. The parameters are uploaded with the mix that uses them.
func (x *machine) Put(_ context.Context, v *lora.Version) error {
	s, err := x.host.NewSlot(v.State())
	if err != nil {
		return err
	}
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

// mixOf returns a mix for all the given slots. While no program for all of them is ready, it
// prepares one and returns the mix that covers most of them.
func (x *machine) mixOf(ctx context.Context, need []*engine.Slot) (*mix, error) {
	failed := x.arrive(ctx, need)
	best, seated := x.base, need[:0]
	for _, m := range x.mixes {
		if some := m.some(need); len(some) > len(seated) {
			best, seated = m, some
		}
		if len(seated) == len(need) {
			break
		}
	}
	if len(seated) < len(need) {
		if failed != nil {
			return nil, failed
		}
		x.prepare(need)
	}
	if best == x.base {
		return best, nil
	}
	if seats := best.seat(seated); best.slot == nil || !slices.Equal(seats, best.seats) {
		slot := x.host.NewMix(slotsOf(seats)...)
		if err := best.program.Bring(ctx, slot); err != nil {
			return nil, err
		}
		best.seats, best.slot = seats, slot
	}
	i := slices.Index(x.mixes, best)
	x.mixes = slices.Insert(slices.Delete(x.mixes, i, i+1), 0, best)
	return best, nil
}

// some returns the slots that can have seats together: all, or else as many as fit, from the first
// on.
func (m *mix) some(need []*engine.Slot) (seated []*engine.Slot) {
	if m.seat(need) != nil {
		return need
	}
	for _, s := range need {
		if more := append(slices.Clip(seated), s); m.seat(more) != nil {
			seated = more
		}
	}
	return seated
}

// seat assigns each slot a seat of its shape; slots that have a seat keep it. Vacant seats are also
// filled with one of the slots; the others stay unchanged. It returns nil if seats are missing or a
// seat cannot be filled.
func (m *mix) seat(need []*engine.Slot) []seat {
	seats := slices.Clone(m.seats)
	taken := make([]bool, len(seats))
	var left []*engine.Slot
	for _, s := range need {
		if i := slices.IndexFunc(seats, func(o seat) bool { return o.slot == s }); i >= 0 {
			taken[i] = true
		} else {
			left = append(left, s)
		}
	}
	for _, s := range left {
		i := 0
		for i < len(seats) && (taken[i] || seats[i].shape != s.Shape()) {
			i++
		}
		if i == len(seats) {
			return nil
		}
		seats[i].slot, taken[i] = s, true
	}
	for i, s := range seats {
		if s.slot != nil {
			continue
		}
		like := slices.IndexFunc(seats, func(o seat) bool { return o.slot != nil && o.shape == s.shape })
		if like < 0 {
			return nil
		}
		seats[i].slot = seats[like].slot
	}
	return seats
}

// spread returns the seats of a new mix. The number of each shape is a power of two, so that
// adapters that arrive one by one seldom need a new plan. A free seat costs little, since no token
// uses it.
func spread(need []*engine.Slot) (seats []seat) {
	for i, s := range need {
		like := func(o *engine.Slot) bool { return o.Shape() == s.Shape() }
		if slices.IndexFunc(need, like) < i {
			continue // counted with the first of its shape
		}
		n := 0
		for _, o := range need {
			if like(o) {
				seats = append(seats, seat{o, o.Shape()})
				n++
			}
		}
		for ; n&(n-1) != 0; n++ {
			seats = append(seats, seat{s, s.Shape()})
		}
	}
	return seats
}

// sweep frees dropped slots. Another slot of the same shape takes the seat of a dropped one. If
// there is none, the seat becomes vacant and the mix cannot run until a slot arrives.
func (x *machine) sweep() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.dropped) == 0 {
		return
	}
	for _, m := range x.mixes {
		seats := slices.Clone(m.seats)
		for j, s := range seats {
			if !slices.Contains(x.dropped, s.slot) {
				continue
			}
			seats[j].slot = x.inPlaceOf(s)
		}
		if !slices.Equal(seats, m.seats) {
			m.seats, m.slot = seats, nil // upload before the next run
		}
	}
	for _, s := range x.dropped {
		s.Free()
	}
	x.dropped = nil
}

func (x *machine) unload(m *mix) {
	x.host.Unload(m.program)
	x.mixes = slices.DeleteFunc(x.mixes, func(o *mix) bool { return o == m })
}

// run reads the tokens of a batch and returns the logits of rows of them.
func (x *machine) run(ctx context.Context, m *mix, b *data.Batch, length, rows int) ([]float32, error) {
	if err := m.program.Run(ctx, m.slot, b, length); err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	logits := x.logits[:rows*x.host.Model().Config.VocabSize]
	if err := m.program.Read(ctx, logitsResult, logits); err != nil {
		return nil, fmt.Errorf("batching: %w", err)
	}
	return logits, nil
}

// close frees the device memory.
func (x *machine) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.coming != nil {
		<-x.coming.ready
		x.coming.draft.Drop()
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
