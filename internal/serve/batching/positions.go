package batching

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// usualRanks are the ranks that programs have positions for, unless Options.FixedAdapters is set:
// usualPositions of each, and more once more adapters are loaded. A vacant position costs next to
// nothing. Factors of other ranks are not padded to these, since a longer sum may be rounded
// differently.
var usualRanks = []int{4, 8, 16, 32, 64}

const usualPositions = 8

// usual reports whether every program with factors of these element types has positions of the kind.
func (k kind) usual() bool { return k.like == nil && slices.Contains(usualRanks, k.size.Rank) }

// maxKinds is the number of kinds of positions from which a larger program drops unused kinds.
const maxKinds = 20

// layout lists the positions of a program. A position for a plain adapter has the size of its factors,
// since everything else is data. A position for another adapter has its shape.
type layout struct {
	positions engine.Positions
	keys      []string // of the kinds of the positions
}

func newLayout(kinds []kind) *layout {
	p := &layout{}
	for _, plain := range []bool{true, false} {
		for _, k := range kinds {
			if (k.like == nil) != plain {
				continue
			}
			for range k.count {
				p.keys = append(p.keys, k.key())
				if plain {
					p.positions.Sizes = append(p.positions.Sizes, k.size)
				} else {
					p.positions.Likes = append(p.positions.Likes, k.like.Vacant())
				}
			}
		}
	}
	return p
}

// kind is a number of positions for the same adapters.
type kind struct {
	size  lora.FactorType
	like  *engine.Slot // nil for plain adapters
	count int
}

func (k kind) key() string {
	if k.like != nil {
		return k.like.Shape()
	}
	return k.size.String()
}

// kindsOf returns the positions that an adapter needs, one of each kind.
func kindsOf(s *engine.Slot) (kinds []kind) {
	for _, size := range s.Sizes() {
		kinds = append(kinds, kind{size, nil, 1})
	}
	if kinds == nil {
		kinds = []kind{{like: s, count: 1}}
	}
	return kinds
}

// kinds returns the positions by kind.
func (p *layout) kinds() (kinds []kind) {
	if p == nil {
		return nil
	}
	for i, key := range p.keys {
		if j := slices.IndexFunc(kinds, func(k kind) bool { return k.key() == key }); j >= 0 {
			kinds[j].count++
		} else if i < len(p.positions.Sizes) {
			kinds = append(kinds, kind{p.positions.Sizes[i], nil, 1})
		} else {
			kinds = append(kinds, kind{like: p.positions.Likes[i-len(p.positions.Sizes)], count: 1})
		}
	}
	return kinds
}

// grown returns a layout with positions for all slots, up to most of each kind. It returns p if that
// has them. The number of positions doubles, so that few of the adapters that are loaded one by one
// need a larger program. If fixed, it has positions for these slots alone; else there are always some for factors of the
// given type.
func (p *layout) grown(slots []*engine.Slot, most int, fixed bool, factors tensor.DType) *layout {
	kinds, grows, used := p.kinds(), false, map[string]int{}
	at := func(want kind) *kind {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.key() == want.key() })
		if i < 0 {
			i, grows = len(kinds), true
			kinds = append(kinds, want)
		}
		return &kinds[i]
	}
	usual := func(a, b tensor.DType) {
		for _, rank := range usualRanks {
			at(kind{lora.FactorType{Rank: rank, A: a, B: b}, nil, min(usualPositions, most)})
		}
	}
	if !fixed {
		usual(factors, factors)
	}
	for _, s := range slots {
		for _, want := range kindsOf(s) {
			if want.usual() && !fixed {
				usual(want.size.A, want.size.B)
			}
			used[want.key()]++
			k := at(want)
			for n := min(most, used[want.key()]); k.count < n; grows = true {
				k.count = min(2*k.count, most)
			}
		}
	}
	if !grows {
		return p
	}
	spare := len(kinds) - maxKinds
	kinds = slices.DeleteFunc(kinds, func(k kind) bool {
		drop := spare > 0 && used[k.key()] == 0 && !k.usual()
		if drop {
			spare--
		}
		return drop
	})
	return newLayout(kinds)
}

// mix is a program with adapters at its positions.
type mix struct {
	plan    *layout // nil for the model alone
	slots   []*engine.Slot
	slot    *engine.Slot    // of all of them; nil if it must be rebuilt
	program *engine.Program // that slot was brought to; nil if it was not
	ready   *engine.Draft   // the program before it is used; else nil
}

func newMix(p *layout) *mix { return &mix{plan: p, slots: make([]*engine.Slot, len(p.keys))} }

// numberOf returns the number of a slot in the mix, or -1.
func (m *mix) numberOf(s *engine.Slot) int { return slices.Index(m.slots, s) }

// leave vacates the positions of a slot.
func (m *mix) leave(s *engine.Slot) {
	for i := range m.slots {
		if m.slots[i] == s {
			m.slots[i], m.slot = nil, nil
		}
	}
}

// assign assigns positions to slots, in order, and returns the slots for which none is left. A slot
// keeps its positions until another slot needs them.
func (m *mix) assign(need []*engine.Slot) (left []*engine.Slot) {
	taken := make([]bool, len(m.slots))
	for _, s := range need {
		positions := m.positionsFor(s, need, taken)
		if positions == nil {
			left = append(left, s)
			continue
		}
		for _, i := range positions {
			if taken[i] = true; m.slots[i] == s {
				continue
			}
			if m.slots[i] != nil {
				m.leave(m.slots[i])
			}
			m.slots[i], m.slot = s, nil
		}
	}
	for _, s := range left { // they may have had positions that earlier slots took
		m.leave(s)
	}
	return left
}

// positionsFor returns the positions for a slot that are not taken: its own if possible, or vacant
// ones, or ones of slots that are not needed, or any. It returns nil if there are too few.
func (m *mix) positionsFor(s *engine.Slot, need []*engine.Slot, taken []bool) (positions []int) {
	for _, want := range kindsOf(s) {
		best, rank := -1, 0
		for i, key := range m.plan.keys {
			if key != want.key() || taken[i] {
				continue
			}
			r := 1
			switch o := m.slots[i]; {
			case o == s:
				r = 4
			case o == nil:
				r = 3
			case !slices.Contains(need, o):
				r = 2
			}
			if r > rank {
				best, rank = i, r
			}
		}
		if best < 0 {
			return nil
		}
		positions = append(positions, best)
	}
	return positions
}

// prepare compiles a program with positions for an adapter, unless there is one. The registry calls it
// when it loads an adapter. If no program can run the adapter, requests for it fail, not the load.
func (x *machine) prepare(state *lora.State) {
	if s, err := x.newSlot(state); err == nil {
		_ = x.grow(s)
	}
}

// planFor returns the current layout, and one with positions for more slots and for all slots on the
// device.
func (x *machine) planFor(more ...*engine.Slot) (now, next *layout) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return x.plan, x.plan
	}
	slots := slices.Clone(more)
	for _, s := range x.slots {
		if !slices.Contains(more, s) {
			slots = append(slots, s)
		}
	}
	return x.plan, x.plan.grown(slots, x.most, x.fixed, x.factors)
}

// grow compiles a program with positions for more slots, unless there is one.
func (x *machine) grow(more ...*engine.Slot) error {
	if now, next := x.planFor(more...); next == now {
		return nil
	}
	x.growing.Lock()
	defer x.growing.Unlock()
	now, next := x.planFor(more...) // again, since another call may have compiled it meanwhile
	if next == now {
		return nil
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // an unreadable page of a mapped file
	var ready *engine.Draft
	err := safely(func() (err error) {
		ready, err = x.host.Prepare(x.vacant(next), x.spec(mixProgram, x.cache))
		return err
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.ready.Drop()
	x.plan, x.ready = next, ready
	x.mu.Unlock()
	x.news()
	return nil
}

// vacant returns a mix without adapters, to plan a program with.
func (x *machine) vacant(p *layout) *engine.Slot {
	return x.host.NewOpenMultiAdapter(p.positions, make([]*engine.Slot, len(p.keys))...)
}

// growFor starts compiling a program with positions for slots that have none, unless a program is being
// compiled. It returns the error of the last attempt for these slots. If the number of positions is at
// its maximum, the slots wait until other slots leave.
func (x *machine) growFor(left []*engine.Slot) error {
	x.mu.Lock()
	behind, err := x.behind, x.failed
	if !slices.Equal(x.failedFor, left) {
		err = nil
	}
	x.failed, x.failedFor = nil, nil
	x.mu.Unlock()
	if behind || err != nil {
		return err
	}
	if now, next := x.planFor(left...); now == next {
		return nil
	}
	x.mu.Lock()
	x.behind = true
	x.mu.Unlock()
	left = slices.Clone(left)
	go func() {
		err := x.grow(left...)
		x.mu.Lock()
		x.behind, x.failed, x.failedFor = false, err, left
		x.mu.Unlock()
		x.news()
	}()
	return nil
}

// check returns why there can be no program for an adapter.
func (x *machine) check(s *engine.Slot) error {
	_, err := x.host.Plan(x.vacant(newLayout(kindsOf(s))), x.spec("", x.cache))
	if err != nil {
		return fmt.Errorf("batching: %w", err)
	}
	return nil
}
