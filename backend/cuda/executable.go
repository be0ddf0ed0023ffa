//go:build cuda && linux

package cuda

import (
	"context"
	"fmt"
	"time"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
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

	// Of the device's goroutine.
	arena, scratch *block
	shared         *buffer // the arena where it is the caller's, or nil
	traps          traps
	plan           *gpu.Plan
	launches       driver.Launches
	graphs         graphs
}

// Compile prepares the launches of p, and allocates its arena and the memory
// that they are kept in: runs allocate nothing.
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
		return nil, fmt.Errorf("cuda: an arena of %d bytes for a program of %d", b.bytes, p.Arena)
	}
	return d.compileIn(p, b)
}

// compileIn makes an executable whose arena is a buffer of the caller, or its own
// where that is nil.
func (d *Device) compileIn(p *ir.Program, arena *buffer) (backend.Executable, error) {
	if err := gpu.Supported(p); err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	e := &executable{dev: d, prog: p, shared: arena}
	for i := range e.flights {
		e.flights[i] = newFlight(e)
	}
	if err := d.queue.do(e.prepare); err != nil {
		return nil, err
	}
	return e, nil
}

// prepare makes everything that runs need.
func (e *executable) prepare() (err error) {
	d := e.dev
	defer func() {
		if err != nil {
			e.dispose()
		}
	}()
	if e.plan, err = gpu.New(e.prog, d.target()); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	if e.shared != nil {
		e.arena = e.shared.block
	} else if e.arena, err = d.obtain(e.prog.Arena, useArena, fmt.Sprintf("the arena of a program of %d launches", len(e.prog.Launches))); err != nil {
		return err
	}
	if e.scratch, err = d.obtain(e.plan.Scratch, useArena, "what kernels keep in passing"); err != nil {
		return err
	}
	if err = e.traps.allocate(); err != nil {
		return d.refused(backend.Flights*gpu.TrapBytes, "pinned memory of a program", err)
	}
	e.launches = driver.NewLaunches(len(e.plan.Kernels))
	e.plan.Bind(e.launches)
	for i, k := range e.plan.Kernels {
		if e.launches[i].Function, err = d.kernel(k); err != nil {
			return fmt.Errorf("cuda: %v: %w", e.prog.Launches[e.plan.Of(i)].Op, err)
		}
	}
	at := e.arena.at
	if e.shared != nil {
		at = e.shared.address()
	}
	for i := range e.flights {
		r := &e.flights[i].Run
		r.Arena, r.Scratch = gpu.Pointer(at), gpu.Pointer(e.scratch.at)
	}
	d.programs[e] = struct{}{}
	return nil
}

// dispose gives back what prepare has made.
func (e *executable) dispose() {
	delete(e.dev.programs, e)
	e.graphs.clear()
	if e.shared == nil {
		e.dev.release(e.arena)
	}
	e.dev.release(e.scratch)
	e.traps.free()
	e.launches.Free()
	e.arena, e.scratch, e.launches = nil, nil, nil
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
	_ = e.dev.queue.do(func() error { e.dispose(); return nil }) // a closed device has done so
	return nil
}

// Run hands one run over. It waits for the first of those under way where they
// are as many as may be, and where the context has a yield for that: a run does
// not stop between its launches.
func (e *executable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	f := &e.flights[e.next]
	if err := f.Begin(ctx); err != nil {
		return nil, err
	}
	err := e.accept(f, args)
	if err == nil {
		f.ctx = ctx
		err = e.dev.queue.send(f)
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
		return fmt.Errorf("cuda: executable: %w", backend.ErrClosed)
	}
	if err := f.Accept(e.prog, args); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	for i, b := range args.Buffers {
		c, err := e.dev.bufferOf(b)
		if err != nil {
			return fmt.Errorf("argument %q: %w", e.prog.Args[i].Name, err)
		}
		if err := f.Take(e.prog, i, gpu.Pointer(c.address()), c.bytes, c.readOnly); err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		f.args[i] = c
	}
	return nil
}

// batch is how many launches are filled in before they are enqueued, so that
// the device begins while the next ones are prepared.
const batch = 64

// launched runs launch by launch.
func (e *executable) launched(f *flight) error {
	for from := 0; from < e.plan.Len(); from += batch {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		to := min(e.plan.Len(), from+batch)
		e.fill(f, from, to)
		if err := e.issue(from, to); err != nil {
			return err
		}
	}
	return nil
}

// fill sets the sizes and parameters of launches. Those of the run before have been
// enqueued, which has copied them.
func (e *executable) fill(f *flight, from, to int) {
	for i := from; i < to; i++ {
		e.plan.Fill(i, &f.Run)
	}
}

// issue enqueues launches that are filled in.
func (e *executable) issue(from, to int) error {
	first, _ := e.plan.Range(from)
	_, last := e.plan.Range(to - 1)
	done, err := e.launches[first:last].Issue(e.dev.compute.Stream)
	if err == nil {
		return nil
	}
	at := e.plan.Of(first + done)
	return e.dev.failed(fmt.Errorf("launch %d %v: %w", at, e.prog.Launches[at].Op, err))
}

// measured runs launch by launch and measures each.
func (e *executable) measured(f *flight) error {
	begin, end := cu.Event{}, cu.Event{}
	for _, v := range []*cu.Event{&begin, &end} {
		var err error
		if *v, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return e.dev.failed(driver.Of(err))
		}
		defer func() { _ = cu.DestroyEvent(v) }()
	}
	for i := range e.plan.Len() {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		e.fill(f, i, i+1)
		took, err := e.timed(i, begin, end)
		if err != nil {
			return err
		}
		e.dev.profile.Add(&e.prog.Launches[i], f.Dims, 0, took)
	}
	return nil
}

// timed runs launch i, and waits for it.
func (e *executable) timed(i int, begin, end cu.Event) (time.Duration, error) {
	s := e.dev.compute.Stream
	err := driver.Of(begin.Record(s))
	if err == nil {
		if err := e.issue(i, i+1); err != nil {
			return 0, err
		}
		err = driver.Of(end.Record(s))
	}
	if err == nil {
		err = driver.Wait(end)
	}
	var ms float64
	if err == nil {
		ms, err = begin.Elapsed(end)
	}
	if err != nil {
		return 0, e.dev.failed(driver.Of(err))
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}
