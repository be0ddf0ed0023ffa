package engine

import (
	"context"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
)

// runs is a queue of the pending runs of a program, oldest first. Its capacity is the number
// of runs that a device can queue.
type runs struct {
	ring         [backend.MaxInFlight]run
	first, count int
}

// run is a pending run.
type run struct {
	leash leash
	fence backend.Fence
	slot  *Slot
}

// begin starts a run of the bound executable with a slot. If the queue is full, it first waits
// for the oldest run and returns its error, if any.
func (x *runs) begin(ctx context.Context, e *exec.Executable, s *Slot, launch func(context.Context) (over func())) error {
	if x.count == len(x.ring) {
		if err := x.end(); err != nil {
			return err
		}
	}
	r := x.at(x.count)
	r.leash.hold(ctx, launch)
	f, err := e.Run(&r.leash)
	if err != nil {
		return err
	}
	if f != (backend.Done{}) {
		r.fence, r.slot = f, s
		x.count++
	}
	return nil
}

// at returns the i-th pending run.
func (x *runs) at(i int) *run { return &x.ring[(x.first+i)%len(x.ring)] }

// end waits for the oldest run. If the run failed, the values computed for its slot are marked
// as outdated.
func (x *runs) end() error {
	r := x.at(0)
	x.first, x.count = (x.first+1)%len(x.ring), x.count-1
	err := r.fence.Wait(context.Background())
	if err != nil {
		r.slot.Changed()
	}
	r.fence, r.slot = nil, nil
	return err
}

// settle waits for all. Errors: that of the first that failed.
func (x *runs) settle() (err error) {
	for x.count > 0 {
		if e := x.end(); err == nil {
			err = e
		}
	}
	return err
}

// seal seals all runs. It returns false if one was already canceled.
func (x *runs) seal() bool {
	for i := range x.count {
		if !x.at(i).leash.seal() {
			return false
		}
	}
	return true
}
