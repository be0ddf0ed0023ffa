//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// flight is a run under way: its fence and its completion.
type flight struct {
	gpu.Flight
	exe  *executable
	ctx  context.Context
	args []*buffer
	trap []byte // of the run's kernels
}

func (f *flight) init(e *executable, i int) {
	f.exe, f.args = e, make([]*buffer, len(e.prog.Args))
	f.trap = e.traps.contents[i*gpu.TrapBytes : (i+1)*gpu.TrapBytes]
	f.Prepare(e.prog)
}

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
	f.Failed = err
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
	if err != nil && f.Failed == nil {
		f.Failed = f.exe.dev.failed(err)
	}
	if found := f.trapped(); f.Failed == nil {
		f.Failed = found
	}
	f.ctx = nil
	f.End()
}

// trapped is what kernels have found wrong in this run.
func (f *flight) trapped() error {
	if err := f.exe.plan.Trapped(&f.Run, f.trap); err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	return nil
}
