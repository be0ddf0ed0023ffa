package batching

import (
	"context"
	"runtime/debug"
	"slices"

	"github.com/lorafuse/lorafuse/engine"
)

// coming is a mix whose program is planned and compiled by a goroutine of its own, while
// others run.
type coming struct {
	need  []*engine.Slot
	seats []seat

	ready chan struct{} // closed when what follows is there
	draft *engine.Draft
	err   error
}

// prepare begins to prepare a mix for all of some slots, unless one is prepared already.
func (x *machine) prepare(need []*engine.Slot) {
	if x.coming != nil {
		return
	}
	seats := spread(need)
	c := &coming{need: need, seats: seats, ready: make(chan struct{})}
	slot := x.host.NewMix(slotsOf(seats)...)
	x.coming = c
	go func() {
		debug.SetPanicOnFault(true) // a page of a mapped file that cannot be read
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

// arrive takes the mix that was prepared, if it is ready. Errors: why there is none for all
// of these slots.
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
		return nil // it is for others
	}
	return c.err
}

// reseated is seats with others of their shapes in the place of slots that were dropped
// meanwhile, nil where there are none.
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

// inPlaceOf is the slot of a seat, or where it was dropped any other of the shape, nil if
// there is none. It holds x.mu.
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
