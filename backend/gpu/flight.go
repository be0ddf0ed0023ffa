package gpu

import (
	"context"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
)

// Flight is what a device keeps for one run under way of a program: what it runs on, and
// its fence. It is there for one run after the other, so that they allocate nothing.
type Flight struct {
	Run
	Failed error // of the run that ended last

	// landed holds one token while no run is under way; who has it may touch the rest.
	landed chan struct{}
	over   func() // of the run's yield, or nil
}

// Prepare makes a flight for the runs of p.
func (f *Flight) Prepare(p *ir.Program) {
	f.landed = make(chan struct{}, 1)
	f.Args, f.Dims = make([]Pointer, len(p.Args)), make([]int, len(p.Bounds))
	f.landed <- struct{}{}
}

// Begin takes the flight for a run. It waits for the run that has it, or until ctx ends,
// and where the context has a yield for that: a run does not stop between its launches.
func (f *Flight) Begin(ctx context.Context) error {
	select {
	case <-f.landed:
	case <-ctx.Done():
		return ctx.Err()
	}
	if yield := backend.Yield(ctx); yield != nil {
		f.over = yield()
	}
	return nil
}

// End leaves the flight to the next run. The device may be another's before that begins.
func (f *Flight) End() {
	if f.over != nil {
		f.over()
		f.over = nil
	}
	f.landed <- struct{}{}
}

// Wait waits for the run, and gives its error.
func (f *Flight) Wait(ctx context.Context) error {
	select {
	case <-f.landed:
	default:
		select {
		case <-f.landed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := f.Failed
	f.landed <- struct{}{}
	return err
}

// Land waits until no run is under way.
func (f *Flight) Land() { _ = f.Wait(context.Background()) }
