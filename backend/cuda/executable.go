//go:build cuda && linux

package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/ir"
)

// executable is a compiled program. It is its own job in the device's queue,
// its own fence and its own completion, so that a run allocates nothing.
type executable struct {
	dev  *Device
	prog *ir.Program
	need []int // largest dimensions

	// idle holds one token while no run is under way; who has it may touch
	// what follows.
	idle   chan struct{}
	closed bool
	ctx    context.Context
	args   []*buffer
	run    gpu.Run
	failed error // of the run that ended last

	// Of the device's goroutine.
	arena, scratch *block
	shared         *buffer // the arena where it is the caller's, or nil
	trap           []byte  // pinned: where kernels say what is wrong
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
	e := &executable{dev: d, prog: p, shared: arena, need: p.MaxDims(), idle: make(chan struct{}, 1), args: make([]*buffer, len(p.Args))}
	e.run = gpu.Run{Args: make([]gpu.Pointer, len(p.Args)), Dims: make([]int, len(p.Bounds))}
	if err := d.queue.do(e.prepare); err != nil {
		return nil, err
	}
	e.idle <- struct{}{}
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
	if e.trap, err = driver.HostAlloc(trapBytes); err != nil {
		return d.refused(trapBytes, "pinned memory of a program", err)
	}
	clear(e.trap)
	e.launches = driver.NewLaunches(len(e.plan.Kernels))
	e.plan.Bind(e.launches)
	for i, k := range e.plan.Kernels {
		if e.launches[i].Function, err = d.kernel(k); err != nil {
			return fmt.Errorf("cuda: %v: %w", e.prog.Launches[e.plan.Of(i)].Op, err)
		}
	}
	e.run.Arena, e.run.Scratch, e.run.Trap = gpu.Pointer(e.arena.at), gpu.Pointer(e.scratch.at), gpu.Pointer(pointerTo(e.trap))
	if e.shared != nil {
		e.run.Arena = gpu.Pointer(e.shared.address())
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
	_ = driver.HostFree(e.trap)
	e.launches.Free()
	e.arena, e.scratch, e.trap, e.launches = nil, nil, nil, nil
}

// Close waits for a run under way and frees the arena. Closing twice does
// nothing.
func (e *executable) Close() error {
	<-e.idle
	defer func() { e.idle <- struct{}{} }()
	if e.closed {
		return nil
	}
	e.closed = true
	_ = e.dev.queue.do(func() error { e.dispose(); return nil }) // a closed device has done so
	return nil
}

// Run hands one run over. It waits for the one before, if that is still under
// way.
func (e *executable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	select {
	case <-e.idle:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err := e.accept(args)
	if err == nil {
		e.ctx = ctx
		err = e.dev.queue.send(e)
	}
	if err != nil {
		e.idle <- struct{}{}
		return nil, err
	}
	return e, nil
}

// accept checks and copies the arguments.
func (e *executable) accept(args backend.Args) error {
	if e.closed {
		return fmt.Errorf("cuda: executable: %w", backend.ErrClosed)
	}
	p := e.prog
	if len(args.Buffers) != len(p.Args) {
		return fmt.Errorf("cuda: %d buffers, expected %d", len(args.Buffers), len(p.Args))
	}
	if len(args.Dims) != len(p.Bounds) {
		return fmt.Errorf("cuda: %d dimensions, expected %d", len(args.Dims), len(p.Bounds))
	}
	for v := 1; v < len(p.Bounds); v++ {
		if n := args.Dims[v]; n < 1 || n > p.Bounds[v].Max {
			return fmt.Errorf("cuda: %s = %d, expected 1 to %d", p.Bounds[v].Name, n, p.Bounds[v].Max)
		}
	}
	copy(e.run.Dims, args.Dims)
	for i, b := range args.Buffers {
		a := &p.Args[i]
		c, err := e.dev.bufferOf(b)
		if err != nil {
			return fmt.Errorf("argument %q: %w", a.Name, err)
		}
		if a.Written && c.readOnly {
			return fmt.Errorf("cuda: the program writes %q, which is an imported buffer", a.Name)
		}
		if n := a.Bytes(e.run.Dims); n > c.bytes {
			return fmt.Errorf("cuda: argument %q: %d bytes of %v in a buffer of %d", a.Name, n, a.Type, c.bytes)
		}
		e.args[i], e.run.Args[i] = c, gpu.Pointer(c.address())
	}
	return nil
}

// perform enqueues the run. A run that cannot go on ends when what it has
// enqueued is done.
func (e *executable) perform() {
	d := e.dev
	e.failed = e.enqueue()
	ticket := d.compute.issued + 1
	for _, b := range e.args {
		b.block.used = ticket
	}
	e.arena.used, e.scratch.used = ticket, ticket
	// From here on the run may end at any time, and the next one begin.
	if _, err := d.compute.mark(e); err != nil {
		if e.failed == nil {
			e.failed = d.failed(err)
		}
		e.finish(nil)
	}
}

func (e *executable) enqueue() (err error) {
	defer func() {
		// A step that meets sizes that do not fit panics; the graph's rules and
		// the checks of arguments should have kept it from that.
		if p := recover(); p != nil {
			err = fmt.Errorf("cuda: internal error: %v", p)
		}
	}()
	d := e.dev
	if err := d.alive(); err != nil {
		return err
	}
	if err := e.ctx.Err(); err != nil {
		return err
	}
	if e.shared != nil && e.shared.gone {
		return fmt.Errorf("cuda: the arena of a program: buffer: %w", backend.ErrClosed)
	}
	copying := e.shared != nil && !d.copies.reached(e.arena.copied)
	for i, b := range e.args {
		if b.gone {
			return fmt.Errorf("cuda: argument %q: buffer: %w", e.prog.Args[i].Name, backend.ErrClosed)
		}
		copying = copying || !d.copies.reached(b.block.copied)
	}
	if copying {
		if err := d.compute.after(d.copies); err != nil {
			return d.failed(err)
		}
	}
	switch {
	case d.profile != nil:
		return e.measured()
	case d.graphs:
		return e.graphed()
	}
	return e.launched()
}

// batch is how many launches are filled in before they are enqueued, so that
// the device begins while the next ones are prepared.
const batch = 64

// launched runs launch by launch.
func (e *executable) launched() error {
	for from := 0; from < e.plan.Len(); from += batch {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		to := min(e.plan.Len(), from+batch)
		e.fill(from, to)
		if err := e.issue(from, to); err != nil {
			return err
		}
	}
	return nil
}

// fill sets the sizes and parameters of launches.
func (e *executable) fill(from, to int) {
	for i := from; i < to; i++ {
		e.plan.Fill(i, &e.run)
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
func (e *executable) measured() error {
	begin, end := cu.Event{}, cu.Event{}
	for _, v := range []*cu.Event{&begin, &end} {
		var err error
		if *v, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return e.dev.failed(driver.Of(err))
		}
		defer func() { _ = cu.DestroyEvent(v) }()
	}
	for i := range e.plan.Len() {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		e.fill(i, i+1)
		took, err := e.timed(i, begin, end)
		if err != nil {
			return err
		}
		e.dev.profile.Add(&e.prog.Launches[i], e.run.Dims, 0, took)
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

// finish ends the run.
func (e *executable) finish(err error) {
	if err != nil && e.failed == nil {
		e.failed = e.dev.lost(err)
	}
	if e.failed == nil {
		e.failed = e.trapped()
	}
	e.ctx = nil
	e.idle <- struct{}{}
}

// Wait waits for the run that was last begun.
func (e *executable) Wait(ctx context.Context) error {
	select {
	case <-e.idle:
		err := e.failed
		e.idle <- struct{}{}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trapBytes is the memory that kernels report in: the number of the launch plus
// one, a place and a value, as 64-bit numbers. The first report stays.
const trapBytes = 64

// trapped is what kernels have found wrong in this run.
func (e *executable) trapped() error {
	i := word(e.trap, 0) - 1
	if i < 0 {
		return nil
	}
	where, value := word(e.trap, 1), word(e.trap, 2)
	clear(e.trap)
	return fmt.Errorf("cuda: %w", e.plan.Wrong(&e.run, i, where, value))
}

// word is one of the numbers of a report.
func word(trap []byte, i int) int { return int(binary.LittleEndian.Uint64(trap[8*i:])) }

// pointerTo is where the device finds pinned memory: at the same address.
func pointerTo(b []byte) cu.DevicePtr {
	return cu.DevicePtr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
