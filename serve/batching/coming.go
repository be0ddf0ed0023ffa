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
	slot  *engine.Slot

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
	c := &coming{need: need, seats: seats, slot: x.runtime.NewMix(slotsOf(seats)...), ready: make(chan struct{})}
	x.coming = c
	go func() {
		debug.SetPanicOnFault(true) // a page of a mapped file that cannot be read
		c.err = safely(func() (err error) {
			if c.draft, _, err = x.plan(c.slot, x.cache); err == nil {
				err = x.runtime.Prepare(c.draft)
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
	if c.err == nil && x.live(slotsOf(c.seats)) {
		var m *mix
		if m, c.err = x.take(ctx, c.draft, c.slot, c.seats); c.err == nil {
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

// live reports whether all of some slots are those of adapters that are on the device.
func (x *machine) live(slots []*engine.Slot) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range slots {
		found := false
		for _, o := range x.slots {
			found = found || o == s
		}
		if !found {
			return false
		}
	}
	return true
}
