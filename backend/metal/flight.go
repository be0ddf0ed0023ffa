//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// flight is a run under way: its fence and its completion. It is there for one run
// after the other, so that they allocate nothing.
type flight struct {
	exe *executable

	// landed holds one token while no run is under way; who has it may touch what
	// follows.
	landed chan struct{}
	ctx    context.Context
	over   func() // of its yield, or nil
	args   []*buffer
	run    gpu.Run
	trap   []byte // of the run's kernels
	failed error  // of the run that ended last
}

func (f *flight) init(e *executable, i int) {
	f.exe, f.landed, f.args = e, make(chan struct{}, 1), make([]*buffer, len(e.prog.Args))
	f.run = gpu.Run{Args: make([]gpu.Pointer, len(e.prog.Args)), Dims: make([]int, len(e.prog.Bounds))}
	f.trap = e.traps.contents[i*trapBytes : (i+1)*trapBytes]
	f.landed <- struct{}{}
}

// Wait waits for the run.
func (f *flight) Wait(ctx context.Context) error {
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

// land waits until no run is under way.
func (f *flight) land() { _ = f.Wait(context.Background()) }

// give gives the run in its turn. What is found wrong from there on its fence tells,
// in its turn too.
func (f *flight) give(ctx context.Context) error {
	e, d := f.exe, f.exe.dev
	d.order.Lock()
	defer d.order.Unlock()
	if d.closed {
		return errClosedDevice
	}
	if err := f.claim(); err != nil {
		return err
	}
	defer f.drop(len(f.args))
	ticket := d.queue.next()
	for i, b := range f.args {
		b.block.used.Store(ticket)
		if e.prog.Args[i].Written {
			b.block.written.Store(ticket)
		}
	}
	for _, b := range []*block{e.arena, e.scratch, e.traps} {
		b.used.Store(ticket)
		b.written.Store(ticket)
	}
	f.ctx = ctx
	w, err := f.start()
	f.failed = err
	// From here on the run may end at any time, and another have its flight.
	d.queue.add(w, f)
	return nil
}

// claim keeps the memory of all arguments. Errors: backend.ErrClosed.
func (f *flight) claim() error {
	e := f.exe
	if e.shared != nil && e.shared.isFreed() {
		return fmt.Errorf("metal: the arena of a program: buffer: %w", backend.ErrClosed)
	}
	for i, b := range f.args {
		if err := b.claim(); err != nil {
			f.drop(i)
			return fmt.Errorf("argument %q: %w", e.prog.Args[i].Name, err)
		}
	}
	return nil
}

// drop ends the claims on the first n arguments.
func (f *flight) drop(n int) {
	for _, b := range f.args[:n] {
		b.drop()
	}
}

func (f *flight) start() (w work, err error) {
	defer func() {
		// A step that meets sizes that do not fit panics; the graph's rules and
		// the checks of arguments should have kept it from that.
		if p := recover(); p != nil {
			err = fmt.Errorf("metal: internal error: %v", p)
		}
	}()
	e, d := f.exe, f.exe.dev
	if err := d.alive(); err != nil {
		return w, err
	}
	if err := f.ctx.Err(); err != nil {
		return w, err
	}
	if d.profile != nil {
		// Commands before this one may be under way; the device does them first.
		return w, e.measured(f)
	}
	return e.encode(f)
}

// finish ends the run.
func (f *flight) finish(err error) {
	if err != nil && f.failed == nil {
		f.failed = f.exe.dev.failed(err)
	}
	if found := f.trapped(); f.failed == nil {
		f.failed = found
	}
	f.ctx = nil
	f.vacate()
}

// vacate is for the next run, with which the device may be another's before.
func (f *flight) vacate() {
	if f.over != nil {
		f.over()
		f.over = nil
	}
	f.landed <- struct{}{}
}

// trapBytes is the memory that the kernels of a run report in: the number of the
// launch plus one, a place and a value, as 64-bit numbers. The first report stays.
const trapBytes = 64

// trapped is what kernels have found wrong in this run.
func (f *flight) trapped() error {
	i := word(f.trap, 0) - 1
	if i < 0 {
		return nil
	}
	where, value := word(f.trap, 1), word(f.trap, 2)
	clear(f.trap)
	return fmt.Errorf("metal: %w", f.exe.plan.Wrong(&f.run, i, where, value))
}

// word is one of the numbers of a report.
func word(trap []byte, i int) int { return int(binary.LittleEndian.Uint64(trap[8*i:])) }
