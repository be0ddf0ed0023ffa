//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/ir"
)

// executable is a compiled program.
type executable struct {
	dev  *Device
	prog *ir.Program

	flights [backend.Flights]flight
	next    int // the flight of the next run
	closed  bool

	arena, scratch, traps *block
	shared                *buffer // the arena where it is the caller's, or nil
	plan                  *gpu.Plan
	kernels               []*kernel
	launches              launches // under the device's order
}

// Compile prepares the launches of p, and allocates its arena and the memory
// that they are kept in: runs allocate nothing of Go's.
func (d *Device) Compile(p *ir.Program) (backend.Executable, error) {
	return d.compileIn(p, nil)
}

// CompileIn is Compile with the arena of the caller.
func (d *Device) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	b, err := d.bufferOf(arena)
	if err != nil {
		return nil, err
	}
	if b.bytes < p.Arena {
		return nil, fmt.Errorf("metal: an arena of %d bytes for a program of %d", b.bytes, p.Arena)
	}
	return d.compileIn(p, b)
}

// compileIn makes an executable whose arena is a buffer of the caller, or its own
// where that is nil.
func (d *Device) compileIn(p *ir.Program, arena *buffer) (backend.Executable, error) {
	e := &executable{dev: d, prog: p, shared: arena}
	err := e.prepare()
	if err == nil {
		d.order.Lock()
		if d.closed {
			err = errClosedDevice
		} else {
			d.programs[e] = struct{}{}
		}
		d.order.Unlock()
	}
	if err != nil {
		e.dispose()
		return nil, err
	}
	return e, nil
}

// prepare makes everything that runs need.
func (e *executable) prepare() (err error) {
	d := e.dev
	if e.plan, err = gpu.New(e.prog, d.target()); err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	if e.shared != nil {
		e.arena = e.shared.block
	} else if e.arena, err = d.obtain(e.prog.Arena, useArena, fmt.Sprintf("the arena of a program of %d launches", len(e.prog.Launches))); err != nil {
		return err
	}
	if e.scratch, err = d.obtain(e.plan.Scratch, useArena, "what kernels keep in passing"); err != nil {
		return err
	}
	if e.traps, err = d.obtain(backend.Flights*gpu.TrapBytes, useArena, "what kernels report in"); err != nil {
		return err
	}
	e.launches = newLaunches(len(e.plan.Kernels))
	e.plan.Bind(e.launches)
	e.kernels = make([]*kernel, len(e.plan.Kernels))
	for i, k := range e.plan.Kernels {
		if e.kernels[i], err = d.shaders.kernel(k); err != nil {
			return fmt.Errorf("metal: %v: %w", e.prog.Launches[e.plan.Of(i)].Op, err)
		}
		e.launches[i].Function = e.kernels[i].handle()
	}
	at := e.arena.slot.at(0)
	if e.shared != nil {
		at = e.shared.at(0)
	}
	for i := range e.flights {
		f := &e.flights[i]
		f.init(e, i)
		f.Arena, f.Scratch, f.Trap = at, e.scratch.slot.at(0), e.traps.slot.at(i*gpu.TrapBytes)
	}
	return nil
}

// dispose gives back what prepare has made.
func (e *executable) dispose() {
	if e.shared == nil {
		e.dev.release(e.arena)
	}
	e.dev.release(e.scratch)
	e.dev.release(e.traps)
	e.launches.free()
	e.arena, e.scratch, e.traps, e.launches = nil, nil, nil, nil
}

// Close waits for the runs under way and frees the arena. Closing twice does
// nothing.
func (e *executable) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	for i := range e.flights {
		e.flights[i].Land()
	}
	d := e.dev
	d.order.Lock()
	defer d.order.Unlock()
	if _, ok := d.programs[e]; ok { // a closed device has done so
		delete(d.programs, e)
		e.dispose()
	}
	return nil
}

// Run gives one run. It waits for the first of those under way where they are as many
// as may be, and where the context has a yield for that: a run does not stop between
// its launches.
func (e *executable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	f := &e.flights[e.next]
	if err := f.Begin(ctx); err != nil {
		return nil, err
	}
	err := e.accept(f, args)
	if err == nil {
		err = f.give(ctx)
	}
	if err != nil {
		f.End()
		return nil, err
	}
	e.next = (e.next + 1) % len(e.flights)
	return f, nil
}

// accept checks the arguments of a run, and copies them into its flight.
func (e *executable) accept(f *flight, args backend.Args) error {
	if e.closed {
		return fmt.Errorf("metal: executable: %w", backend.ErrClosed)
	}
	if err := f.Accept(e.prog, args); err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	for i, b := range args.Buffers {
		c, err := e.dev.bufferOf(b)
		if err != nil {
			return fmt.Errorf("argument %q: %w", e.prog.Args[i].Name, err)
		}
		if err := f.Take(e.prog, i, c.at(0), c.bytes, c.readOnly); err != nil {
			return fmt.Errorf("metal: %w", err)
		}
		f.args[i] = c
	}
	return nil
}

// batch is how many launches are filled in between two looks at the context.
const batch = 64

// encode gives the run as one command.
func (e *executable) encode(f *flight) (work, error) {
	n := e.plan.Len()
	for from := 0; from < n; from += batch {
		if err := f.ctx.Err(); err != nil {
			return work{}, err
		}
		e.fill(f, from, min(n, from+batch))
	}
	return e.issue(0, n)
}

// fill sets the sizes and parameters of launches.
func (e *executable) fill(f *flight, from, to int) {
	for i := from; i < to; i++ {
		e.plan.Fill(i, &f.Run)
		first, last := e.plan.Range(i)
		for k := first; k < last; k++ {
			if e.launches[k].Grid[0] > 0 {
				e.kernels[k].learn(e.plan.Kernels[k])
			}
		}
	}
}

// issue gives launches that are filled in.
func (e *executable) issue(from, to int) (work, error) {
	if len(e.launches) == 0 {
		return work{}, nil
	}
	first, _ := e.plan.Range(from)
	_, last := e.plan.Range(to - 1)
	w, wrong, err := e.dev.system.run(e.launches[first:last])
	if err != nil {
		k := first + wrong
		at := e.plan.Of(k)
		return work{}, e.dev.failed(fmt.Errorf("launch %d %v, kernel %s: %w", at, e.prog.Launches[at].Op, e.plan.Kernels[k].Name, err))
	}
	return w, nil
}

// measured runs launch by launch and waits for each, which tells what it took the
// device.
func (e *executable) measured(f *flight) error {
	for i := range e.plan.Len() {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		e.fill(f, i, i+1)
		first, last := e.plan.Range(i)
		if first == last {
			e.dev.profile.Add(&e.prog.Launches[i], f.Dims, 0, 0)
			continue
		}
		w, err := e.issue(i, i+1)
		if err != nil {
			return err
		}
		took, err := w.wait()
		if err != nil {
			return e.dev.failed(err)
		}
		e.dev.profile.Add(&e.prog.Launches[i], f.Dims, 0, took)
	}
	return nil
}
