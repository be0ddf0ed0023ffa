//go:build cuda && linux

package cuda

import (
	"context"
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
// completion.
type flight struct {
	gpu.Flight
	exe  *executable
	ctx  context.Context
	args []*buffer
	trap int // among those of the executable
}

func newFlight(e *executable) flight {
	f := flight{exe: e, args: make([]*buffer, len(e.prog.Args))}
	f.Prepare(e.prog)
	return f
}

// perform enqueues the run. A run that cannot go on ends when what it has
// enqueued is done.
func (f *flight) perform() {
	e, d := f.exe, f.exe.dev
	f.trap = e.traps.take()
	f.Trap = gpu.Pointer(pointerTo(e.traps.at(f.trap)))
	f.Failed = f.enqueue()
	ticket := d.compute.issued + 1
	for _, b := range f.args {
		b.block.used = ticket
	}
	e.arena.used, e.scratch.used = ticket, ticket
	// From here on the run may end at any time, and another have its flight.
	if _, err := d.compute.mark(f); err != nil {
		if f.Failed == nil {
			f.Failed = d.failed(err)
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
	if err != nil && f.Failed == nil {
		f.Failed = f.exe.dev.lost(err)
	}
	if found := f.trapped(); f.Failed == nil {
		f.Failed = found
	}
	f.exe.traps.give(f.trap)
	f.ctx = nil
	f.End()
}

// trapped is what kernels have found wrong in this run.
func (f *flight) trapped() error {
	if err := f.exe.plan.Trapped(&f.Run, f.exe.traps.at(f.trap)); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// traps are memory in which kernels say what is wrong, one for each run under
// way, pinned for the host to read.
type traps struct {
	memory []byte
	idle   atomic.Uint32 // a bit for each that no run has
}

func (t *traps) allocate() (err error) {
	if t.memory, err = driver.HostAlloc(backend.Flights * gpu.TrapBytes); err != nil {
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

func (t *traps) at(i int) []byte { return t.memory[i*gpu.TrapBytes : (i+1)*gpu.TrapBytes] }

// pointerTo is where the device finds pinned memory: at the same address.
func pointerTo(b []byte) cu.DevicePtr {
	return cu.DevicePtr(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
