package gpu

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Executable is a compiled program.
type Executable struct {
	Plan     *Plan
	Launches []Launch // of the plan's kernels; of the device's turn
	Arena    *Block

	dev     *Device
	program Program
	shared  *Buffer // the arena, if it is the caller's
	scratch *Block
	reports reports

	flights [backend.MaxInFlight]Flight
	next    int // index of the flight for the next run
	closed  bool
}

// Compile prepares the launches of p and allocates its arena and the state of its runs, so that runs allocate nothing.
func (d *Device) Compile(p *ir.Program) (backend.Executable, error) { return d.compile(p, nil) }

// CompileIn compiles p like Compile, but uses the caller's arena.
func (d *Device) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	b, err := d.BufferOf(arena)
	if err != nil {
		return nil, err
	}
	if b.bytes < p.Arena {
		return nil, fmt.Errorf("%s: an arena of %d bytes for a program of %d", d.name, b.bytes, p.Arena)
	}
	return d.compile(p, b)
}

// compile returns an executable whose arena is the caller's buffer, or its own if arena is nil.
func (d *Device) compile(p *ir.Program, arena *Buffer) (_ backend.Executable, err error) {
	e := &Executable{dev: d, shared: arena}
	if e.Plan, err = New(p, d.planned()); err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	e.Launches = make([]Launch, len(e.Plan.Kernels))
	e.Plan.Bind(e.Launches)
	for i := range e.flights {
		e.flights[i].prepare(e)
	}
	if e.program, err = d.driver.Load(e); err != nil {
		return nil, err
	}
	err = d.Do(func() error {
		err := e.allocate()
		if err != nil {
			e.dispose()
			return err
		}
		d.programs[e] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Program returns the driver's part of the executable.
func (e *Executable) Program() Program { return e.program }

// Find sets the functions of the launches. It is for Driver.Load.
func (e *Executable) Find(find func(k *Kernel) (uintptr, error)) (err error) {
	for i, k := range e.Plan.Kernels {
		if e.Launches[i].Function, err = find(k); err != nil {
			return fmt.Errorf("%s: %v: %w", e.dev.name, e.Plan.Op(e.Plan.Of(i)), err)
		}
	}
	return nil
}

// allocate allocates the memory that runs need.
func (e *Executable) allocate() (err error) {
	d, p := e.dev, e.Plan.prog
	if e.shared != nil {
		e.Arena = e.shared.Block
	} else if e.Arena, err = d.Obtain(p.Arena, UseArena, fmt.Sprintf("the arena of a program of %d launches", len(p.Launches))); err != nil {
		return err
	}
	if e.scratch, err = d.Obtain(e.Plan.Scratch, UseArena, "what kernels keep in passing"); err != nil {
		return err
	}
	e.reports.size = TrapBytes + e.Plan.TableBytes
	if e.reports.Block, err = d.Obtain(backend.MaxInFlight*e.reports.size, UseReport, "what kernels report in"); err != nil {
		return err
	}
	e.reports.idle.Store(1<<backend.MaxInFlight - 1)
	for i := range e.flights {
		f := &e.flights[i]
		f.Arena, f.Scratch = e.Arena.At, e.scratch.At
		if e.shared != nil {
			f.Arena = e.shared.At(0)
		}
	}
	return nil
}

// dispose releases the resources of the executable.
func (e *Executable) dispose() {
	delete(e.dev.programs, e)
	e.program.Close()
	if e.shared == nil {
		e.dev.Release(e.Arena)
	}
	e.dev.Release(e.scratch)
	e.dev.Release(e.reports.Block)
	e.Arena, e.scratch, e.reports.Block, e.Launches = nil, nil, nil, nil
}

// Close waits for pending runs and frees the arena. Closing twice does nothing.
func (e *Executable) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	for i := range e.flights {
		e.flights[i].land()
	}
	_ = e.dev.Do(func() error { e.dispose(); return nil }) // a closed device has done so
	return nil
}

// Run submits one run. If the maximum number of runs is pending, it waits for the first of them. It calls the
// context's yield once, since a run does not stop between its launches.
func (e *Executable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	f := &e.flights[e.next]
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	err := e.accept(f, args)
	if err == nil {
		f.ctx = ctx
		err = e.dev.driver.Send(f)
	}
	if err != nil {
		f.end()
		return nil, err
	}
	e.next = (e.next + 1) % len(e.flights)
	return f, nil
}

// accept checks the arguments of a run and copies them into its flight.
func (e *Executable) accept(f *Flight, args backend.Args) error {
	if e.closed {
		return e.dev.closed("executable")
	}
	p := e.Plan.prog
	if err := f.Accept(p, args); err != nil {
		return fmt.Errorf("%s: %w", e.dev.name, err)
	}
	for i, b := range args.Buffers {
		c, err := e.dev.BufferOf(b)
		if err != nil {
			return fmt.Errorf("argument %q: %w", p.Args[i].Name, err)
		}
		if err := f.Take(p, i, c.At(0), c.bytes, c.readOnly); err != nil {
			return fmt.Errorf("%s: %w", e.dev.name, err)
		}
		f.Buffers[i] = c
	}
	return nil
}

// Blame adds to err the program's launch that the failed kernel of the plan belongs to.
func (e *Executable) Blame(kernel int, err error) error {
	i := e.Plan.Of(kernel)
	return e.dev.Failed(fmt.Errorf("launch %d %v, kernel %s: %w", i, e.Plan.Op(i), e.Plan.Kernels[kernel].Name, err))
}

// reports is memory in which kernels report errors, one report per pending run, each followed by the tables of the
// run.
type reports struct {
	*Block
	size int           // of a report and its tables, in bytes
	idle atomic.Uint32 // a bit for each that no run has
}

// take returns the first idle report. Consecutive runs therefore use the same report, and so the same graph of
// launches. It is called in the device's turn.
func (r *reports) take() int {
	i := bits.TrailingZeros32(r.idle.Load())
	r.idle.And(^(uint32(1) << i))
	return i
}

func (r *reports) give(i int) { r.idle.Or(1 << i) }

func (r *reports) at(i int) Pointer { return r.At + Pointer(i*r.size) }

func (r *reports) read(i int) []byte { return r.Host[i*r.size:][:TrapBytes] }

func (r *reports) words(i int) []byte { return r.Host[i*r.size:][TrapBytes:r.size] }
