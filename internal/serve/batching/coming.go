package batching

import (
	"context"
	"runtime/debug"
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
)

// coming is a mix whose program another goroutine plans and compiles while other mixes run.
type coming struct {
	need  []*engine.Slot
	seats []seat

	ready chan struct{} // closed when the fields below are set
	draft *engine.Draft
	err   error
}

// prepare starts to prepare a mix for all the given slots, unless a mix is being prepared already.
func (x *machine) prepare(need []*engine.Slot) {
	if x.coming != nil {
		return
	}
	seats := spread(need)
	c := &coming{need: need, seats: seats, ready: make(chan struct{})}
	slot := x.host.NewMix(slotsOf(seats)...)
	x.coming = c
	go func() {
		debug.SetPanicOnFault(true) // an unreadable page of a mapped file
		c.err = safely(func() (err error) {
			if c.draft, _, err = x.plan(slot, x.cache); err == nil {
				err = x.host.Prepare(c.draft)
			}
			return err
		})
		close(c.ready)
		x.news()
	}()
}

// arrive adds the prepared mix to the mixes if it is ready. The error says why there is no mix for
// all the given slots.
func (x *machine) arrive(ctx context.Context, need []*engine.Slot) error {
	c := x.coming
	if c == nil {
		return nil
	}
	select {
	case <-c.ready:
	default:
		return nil
	}
	x.coming = nil
	if seats := x.reseated(c.seats); c.err == nil && seats != nil {
		var m *mix
		if m, c.err = x.take(ctx, c.draft, x.host.NewMix(slotsOf(seats)...), seats); c.err == nil {
			x.mixes = slices.Insert(x.mixes, 0, m)
			for len(x.mixes) > maxMixes {
				x.unload(x.mixes[maxMixes])
			}
			return nil
		}
	}
	c.draft.Drop()
	if !slices.Equal(c.need, need) {
		return nil // the prepared mix is for other slots
	}
	return c.err
}

// reseated returns seats with each slot dropped in the meantime replaced by another of its shape.
// It is nil if there is no such slot.
func (x *machine) reseated(seats []seat) []seat {
	x.mu.Lock()
	defer x.mu.Unlock()
	seats = slices.Clone(seats)
	for i, s := range seats {
		if seats[i].slot = x.inPlaceOf(s); seats[i].slot == nil {
			return nil
		}
	}
	return seats
}

// inPlaceOf returns the slot of a seat. If that was dropped, it returns any other slot of the
// shape, or nil. The caller holds x.mu.
func (x *machine) inPlaceOf(s seat) (other *engine.Slot) {
	for _, o := range x.slots {
		if o == s.slot {
			return o
		}
		if o.Shape() == s.shape {
			other = o
		}
	}
	return other
}
