package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/backend"
)

// Flight holds the state of one pending run of a program: its inputs, its job and its fence. Flights are reused by
// later runs, so that runs allocate nothing.
type Flight struct {
	Run
	Buffers []*Buffer // the arguments

	exe    *Executable
	ctx    context.Context
	report int   // index among the executable's reports
	failed error // of the run that ended last

	// landed holds one token while no run is pending; its holder may access the other fields.
	landed chan struct{}
	over   func() // of the run's yield, or nil
}

// prepare sets the flight up for runs of e.
func (f *Flight) prepare(e *Executable) {
	p := e.Plan.prog
	f.exe, f.landed = e, make(chan struct{}, 1)
	if d, ok := e.dev.driver.(Addresser); ok {
		f.Address, f.Accesses = d.Address, make([]Access, e.Plan.Addresses)
	}
	f.Args, f.Buffers, f.Dims = make([]Pointer, len(p.Args)), make([]*Buffer, len(p.Args)), make([]int, len(p.Bounds))
	f.landed <- struct{}{}
}

// Context returns the context of the run, until the run ends.
func (f *Flight) Context() context.Context { return f.ctx }

// begin acquires the flight for a run. It waits for the previous run in this flight, or until ctx ends, and then for
// the context's yield.
func (f *Flight) begin(ctx context.Context) error {
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

// end releases the flight to the next run. The device may serve another client before that run begins.
func (f *Flight) end() {
	if f.over != nil {
		f.over()
		f.over = nil
	}
	f.landed <- struct{}{}
}

// Wait waits for the run, and returns its error.
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
	err := f.failed
	f.landed <- struct{}{}
	return err
}

// land waits until no run is pending.
func (f *Flight) land() { _ = f.Wait(context.Background()) }

// Perform enqueues the run. If enqueuing fails midway, the run ends when the enqueued part is done.
func (f *Flight) Perform() {
	e := f.exe
	f.report = e.reports.take()
	f.Trap, f.Table = e.reports.at(f.report), e.reports.at(f.report)+TrapBytes
	f.Words = e.reports.words(f.report)
	f.failed = f.launch()
	// The run may now end at any time, and another may acquire its flight.
	if err := e.program.Mark(f); err != nil {
		if f.failed == nil {
			f.failed = e.dev.Failed(err)
		}
		f.Finish(nil)
	}
}

func (f *Flight) launch() (err error) {
	e, d := f.exe, f.exe.dev
	defer func() {
		// A step panics on sizes that do not fit. The graph's rules and the argument checks should have prevented
		// that.
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: internal error: %v", d.name, p)
		}
	}()
	if err := d.Alive(); err != nil {
		return err
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if e.shared != nil {
		if err := e.shared.Open(); err != nil {
			return fmt.Errorf("the arena of a program: %w", err)
		}
	}
	for i, b := range f.Buffers {
		if err := b.Open(); err != nil {
			return fmt.Errorf("argument %q: %w", e.Plan.prog.Args[i].Name, err)
		}
	}
	e.Plan.tabulate(&f.Run)
	return e.program.Launch(f)
}

// Use records the number of the run's work in the blocks that it uses.
func (f *Flight) Use(number uint64) {
	e := f.exe
	for i, b := range f.Buffers {
		b.Block.Used.Store(number)
		if e.Plan.prog.Args[i].Written {
			b.Block.Written.Store(number)
		}
	}
	for _, b := range [...]*Block{e.Arena, e.scratch, e.reports.Block} {
		b.Used.Store(number)
		b.Written.Store(number)
	}
}

// batch is the number of launches that are filled in at a time, so that the device starts while the next ones are
// prepared.
const batch = 64

// Batches fills in the launches of the run, a batch at a time, and hands over the kernels
// from one up to another, until the context ends.
func (f *Flight) Batches(hand func(from, to int) error) error {
	p := f.exe.Plan
	for from := 0; from < p.Len(); from += batch {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		if err := f.Fill(from, min(p.Len(), from+batch), hand); err != nil {
			return err
		}
	}
	return nil
}

// Fill fills in launches of the program, and hands over their kernels. The launches of
// the run before were enqueued, which has copied them.
func (f *Flight) Fill(from, to int, hand func(from, to int) error) error {
	p := f.exe.Plan
	for i := from; i < to; i++ {
		p.Fill(i, &f.Run)
	}
	first, _ := p.Range(from)
	_, last := p.Range(to - 1)
	return hand(first, last)
}

// Measure runs launch by launch. timed runs the kernels from one up to another, waits for
// them, and returns the time that they took the device.
func (f *Flight) Measure(timed func(from, to int) (time.Duration, error)) error {
	e := f.exe
	for i := range e.Plan.Len() {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		var took time.Duration
		err := f.Fill(i, i+1, func(from, to int) (err error) {
			if from < to {
				took, err = timed(from, to)
			}
			return err
		})
		if err != nil {
			return err
		}
		e.dev.Profile.Add(&e.Plan.prog.Launches[i], f.Dims, 0, took)
	}
	return nil
}

// Finish ends the run.
func (f *Flight) Finish(err error) {
	e := f.exe
	if err != nil && f.failed == nil {
		f.failed = e.dev.Failed(err)
	}
	// Errors that kernels reported are cleared for the next run.
	if err := e.Plan.Trapped(&f.Run, e.reports.read(f.report)); err != nil && f.failed == nil {
		f.failed = fmt.Errorf("%s: %w", e.dev.name, err)
	}
	e.reports.give(f.report)
	f.ctx = nil
	f.end()
}
