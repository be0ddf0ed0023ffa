//go:build cuda && linux

package cuda

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// flight is a run under way: its job in the device's queue, its fence and its
// completion. It is there for one run after the other, so that they allocate
// nothing.
type flight struct {
	exe *executable

	// landed holds one token while no run is under way; who has it may touch what
	// follows.
	landed chan struct{}
	ctx    context.Context
	over   func() // of its yield, or nil
	args   []*buffer
	run    gpu.Run
	trap   int   // among those of the executable
	failed error // of the run that ended last
}

func newFlight(e *executable) flight {
	f := flight{exe: e, landed: make(chan struct{}, 1), args: make([]*buffer, len(e.prog.Args))}
	f.run = gpu.Run{Args: make([]gpu.Pointer, len(e.prog.Args)), Dims: make([]int, len(e.prog.Bounds))}
	f.landed <- struct{}{}
	return f
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

// perform enqueues the run. A run that cannot go on ends when what it has
// enqueued is done.
func (f *flight) perform() {
	e, d := f.exe, f.exe.dev
	f.trap = e.traps.take()
	f.run.Trap = gpu.Pointer(pointerTo(e.traps.at(f.trap)))
	f.failed = f.enqueue()
	ticket := d.compute.issued + 1
	for _, b := range f.args {
		b.block.used = ticket
	}
	e.arena.used, e.scratch.used = ticket, ticket
	// From here on the run may end at any time, and another have its flight.
	if _, err := d.compute.mark(f); err != nil {
		if f.failed == nil {
			f.failed = d.failed(err)
		}
		f.finish(nil)
	}
}

func (f *flight) enqueue() (err error) {
	defer func() {
		// A step that meets sizes that do not fit panics; the graph's rules and
		// the checks of arguments should have kept it from that.
		if p := recover(); p != nil {
			err = fmt.Errorf("cuda: internal error: %v", p)
		}
	}()
	e, d := f.exe, f.exe.dev
	if err := d.alive(); err != nil {
		return err
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if e.shared != nil && e.shared.gone {
		return fmt.Errorf("cuda: the arena of a program: buffer: %w", backend.ErrClosed)
	}
	copying := e.shared != nil && !d.copies.reached(e.arena.copied)
	for i, b := range f.args {
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
		return e.measured(f)
	case d.graphs:
		return e.graphed(f)
	}
	return e.launched(f)
}

// finish ends the run.
func (f *flight) finish(err error) {
	if err != nil && f.failed == nil {
		f.failed = f.exe.dev.lost(err)
	}
	if found := f.trapped(); f.failed == nil {
		f.failed = found
	}
	f.exe.traps.give(f.trap)
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

// trapped is what kernels have found wrong in this run.
func (f *flight) trapped() error {
	trap := f.exe.traps.at(f.trap)
	i := word(trap, 0) - 1
	if i < 0 {
		return nil
	}
	where, value := word(trap, 1), word(trap, 2)
	clear(trap)
	return fmt.Errorf("cuda: %w", f.exe.plan.Wrong(&f.run, i, where, value))
}

// traps are memory in which kernels say what is wrong, one for each run under
// way, pinned for the host to read.
type traps struct {
	memory []byte
	idle   atomic.Uint32 // a bit for each that no run has
}

// trapBytes is the memory that the kernels of a run report in: the number of the
// launch plus one, a place and a value, as 64-bit numbers. The first report stays.
const trapBytes = 64

func (t *traps) allocate() (err error) {
	if t.memory, err = driver.HostAlloc(backend.Flights * trapBytes); err != nil {
		return err
	}
	clear(t.memory)
	t.idle.Store(1<<backend.Flights - 1)
	return nil
}

func (t *traps) free() {
	_ = driver.HostFree(t.memory)
	t.memory = nil
}

// take is for the device's goroutine. The first that is idle makes it that runs one
// by one have the same, and thereby the same graph.
func (t *traps) take() int {
	i := bits.TrailingZeros32(t.idle.Load())
	t.idle.And(^(uint32(1) << i))
	return i
}

func (t *traps) give(i int) { t.idle.Or(1 << i) }

func (t *traps) at(i int) []byte { return t.memory[i*trapBytes : (i+1)*trapBytes] }

// word is one of the numbers of a report.
func word(trap []byte, i int) int { return int(binary.LittleEndian.Uint64(trap[8*i:])) }

// pointerTo is where the device finds pinned memory: at the same address.
func pointerTo(b []byte) cu.DevicePtr {
	return cu.DevicePtr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
