//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Device is an Apple GPU.
type Device struct {
	system    *system
	traits    traits
	precision backend.Precision
	profile   *backend.Profile // nil if nobody asks
	shaders   *shaders
	queue     *queue
	memory    memory
	stages    stages
	lost      atomic.Pointer[error] // why nothing runs here any more

	// order is held by who gives a command: that makes their order. What follows is
	// under it.
	order    sync.Mutex
	closed   bool
	programs map[*executable]struct{} // that are not closed
}

var errClosedDevice = fmt.Errorf("metal: device: %w", backend.ErrClosed)

// Open takes the GPU into use. It computes a little on it first, and compares. Errors:
// backend.ErrUnavailable, where there is none, or where it computes something else;
// backend.ErrLoad.
func Open(o backend.Options) (*Device, error) {
	switch {
	case o.BatchInvariant:
		return nil, fmt.Errorf("%w: batch invariance; expected the CPU, which has it", backend.ErrUnavailable)
	case o.Index != 0:
		return nil, fmt.Errorf("%w: device %d; there is 1", backend.ErrUnavailable, o.Index)
	case o.Load != backend.LoadAuto && o.Load != backend.LoadPlain:
		return nil, fmt.Errorf("%w %v: they are used in place, where they are mapped; expected auto or plain", backend.ErrLoad, o.Load)
	}
	s, err := openSystem()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d := &Device{system: s, traits: s.traits(), precision: o.Precision, programs: map[*executable]struct{}{}}
	d.memory.live, d.memory.windows = map[*block]struct{}{}, map[extent]*block{}
	f, err := probe(s, d.traits)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d.shaders = newShaders(s, f)
	d.queue = newQueue(d.reap)
	if err := d.selfTest(); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("%w: %w: %s: %w", backend.ErrUnavailable, backend.ErrFaulty, d.traits.name, err)
	}
	d.profile = o.Profile // of what its users run
	return d, nil
}

// Close waits for the commands under way and gives the memory back. Buffers and
// executables that are left are of no more use.
func (d *Device) Close() error {
	d.order.Lock()
	first := !d.closed
	d.closed = true
	d.order.Unlock()
	d.queue.close()
	if !first {
		return nil
	}
	d.order.Lock()
	defer d.order.Unlock()
	for e := range d.programs {
		e.dispose()
	}
	clear(d.programs)
	d.forget()
	d.shaders.close()
	d.system.close()
	return nil
}

// Info describes the GPU.
func (d *Device) Info() backend.Info {
	i := d.traits.info()
	i.Precision = d.precision
	i.Detail += ", " + d.shaders.form.String()
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	if c := d.memory.copied.String(); c != "" {
		i.Detail += "; " + c
	}
	return i
}

// Supports reports whether there are kernels for the composite op.
func (d *Device) Supports(op ir.Op, attr any, in []ir.Type) bool {
	return gpu.Supports(op, attr, in)
}

// Stores reports that values lie in memory as they are computed.
func (d *Device) Stores(ir.Op, any, []ir.Type, ir.Place, tensor.DType) bool { return false }

// target is what programs are planned for.
func (d *Device) target() gpu.Target { return gpu.MetalTarget(d.precision, d.traits.threads) }

// alive is why the device cannot be used any more.
func (d *Device) alive() error {
	if err := d.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// failed says of a command what it means that it has failed, and remembers it where
// nothing more runs.
func (d *Device) failed(err error) error {
	switch {
	case errors.Is(err, errDevice):
		err = fmt.Errorf("metal: %w: %w", backend.ErrLost, err)
		d.lost.CompareAndSwap(nil, &err)
	case errors.Is(err, errMemory):
		err = fmt.Errorf("metal: %w: %w", backend.ErrOutOfMemory, err)
	default:
		err = fmt.Errorf("metal: %w", err)
	}
	return err
}

// Alloc gives zeroed memory.
func (d *Device) Alloc(bytes int) (backend.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("metal: %d bytes", bytes)
	}
	b, err := d.obtain(bytes, useBuffer, "a buffer")
	if err != nil {
		return nil, err
	}
	return &buffer{dev: d, block: b, bytes: bytes}, nil
}

// AllocAll divides one stretch of zeroed memory into buffers.
func (d *Device) AllocAll(sizes []int) ([]backend.Buffer, error) {
	division, err := backend.Divide(sizes, backend.PartAlign)
	if err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	whole, err := d.obtain(division.Bytes, useBuffer, fmt.Sprintf("%d buffers", len(sizes)))
	if err != nil {
		return nil, err
	}
	parts := make([]backend.Buffer, len(sizes))
	for i, n := range sizes {
		parts[i] = &buffer{dev: d, block: whole, off: division.Offsets[i], bytes: n, division: division}
	}
	return parts, nil
}

// Part is a part of a buffer.
func (d *Device) Part(b backend.Buffer, off, n int) (backend.Buffer, error) {
	whole, err := d.bufferOf(b)
	if err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off > whole.bytes || n > whole.bytes-off || off%backend.PartAlign != 0 {
		return nil, fmt.Errorf("metal: a part of %d bytes at %d of a buffer of %d", n, off, whole.bytes)
	}
	return &buffer{dev: d, block: whole.block, off: whole.off + off, bytes: n, readOnly: whole.readOnly, of: whole}, nil
}
