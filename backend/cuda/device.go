//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"os"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/weights"
)

// EnvGraph, set to 0, has programs run launch by launch instead of as CUDA
// graphs.
const EnvGraph = "LORAFUSE_CUDA_GRAPH"

// sizes are what programs are planned with: a variable for tests.
var sizes = gpu.DefaultSizes()

// Device is a GPU.
type Device struct {
	properties properties
	precision  backend.Precision
	profile    *backend.Profile // nil if nobody asks
	queue      *queue

	load                    backend.Load
	loads                   loads
	ringSlot, window, trial int64 // bytes
	staging                 int

	// What follows belongs to the queue's goroutine.
	context         cu.CUContext
	compute, copies *stream
	memory          memory
	programs        map[*executable]struct{} // that are not closed
	slots           chan *slot
	pinned          [][]byte
	images          images
	graphs          bool  // runs may become graphs
	dead            error // why nothing runs here any more
}

// Open takes a GPU into use. Errors: backend.ErrUnavailable, where there is no
// driver, no such device, or one that is too old.
func Open(o backend.Options) (*Device, error) {
	if o.BatchInvariant {
		return nil, fmt.Errorf("cuda: %w: batch invariance; expected the CPU, which has it", backend.ErrUnavailable)
	}
	infos, err := Devices()
	if err != nil {
		return nil, err
	}
	p, err := describe(o.Index)
	if err != nil || o.Index < 0 {
		return nil, fmt.Errorf("%w: device %d; there are %d", backend.ErrUnavailable, o.Index, len(infos))
	}
	if err := p.supported(); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d := &Device{
		properties: p, precision: o.Precision, profile: o.Profile, graphs: os.Getenv(EnvGraph) != "0",
		load: o.Load, ringSlot: ringSlotBytes, window: windowBytes, trial: trialBytes, staging: stagingBytes,
	}
	d.memory.live, d.programs = map[*block]struct{}{}, map[*executable]struct{}{}
	if d.queue, err = newQueue(d.begin, d.reap, d.end); err != nil {
		return nil, fmt.Errorf("%w: device %d %s: %w", backend.ErrUnavailable, p.index, p.name, err)
	}
	return d, nil
}

// begin takes the primary context, which stays current in the queue's thread.
func (d *Device) begin(q *queue) (err error) {
	dev := cu.Device(d.properties.index)
	if d.context, err = dev.RetainPrimaryCtx(); err != nil {
		return driver.Of(err)
	}
	defer func() {
		if err != nil {
			d.end()
		}
	}()
	if err = cu.SetCurrentContext(d.context); err != nil {
		return driver.Of(err)
	}
	for _, s := range []**stream{&d.compute, &d.copies} {
		if *s, err = newStream(d.context, q.nudge); err != nil {
			return err
		}
	}
	d.slots = make(chan *slot, slots)
	for range slots {
		mem, err := driver.HostAlloc(slotBytes)
		if err != nil {
			return fmt.Errorf("pinned memory: %w", err)
		}
		d.pinned = append(d.pinned, mem)
		d.slots <- &slot{mem: mem, to: d.slots}
	}
	d.images = newImages()
	return nil
}

// end gives everything back, also what callers have not freed.
func (d *Device) end() {
	for _, s := range []*stream{d.compute, d.copies} {
		if s != nil {
			s.close()
		}
	}
	for e := range d.programs {
		e.dispose()
	}
	for b := range d.memory.live {
		_ = cu.MemFree(b.at)
	}
	clear(d.memory.live)
	d.memory.limbo = nil
	for _, mem := range d.pinned {
		_ = driver.HostFree(mem)
	}
	d.pinned = nil
	d.images.unload()
	_ = cu.Device(d.properties.index).ReleasePrimaryCtx()
}

// Close waits for the work under way and gives the GPU's memory back. Buffers
// and executables that are left are of no more use.
func (d *Device) Close() error {
	d.loads.close()
	d.queue.close()
	return nil
}

// Info describes the GPU. Its rates are those of the tensor cores at precision
// bf16, else of float32; a part of a GPU (MIG) has its own.
func (d *Device) Info() backend.Info {
	i := d.properties.info()
	i.Precision = d.precision
	i.Rated = backend.Peak{FlopsPerSecond: d.properties.flops(d.precision), BytesPerSecond: d.properties.bandwidth}
	return i
}

// Supports reports whether there are kernels for the composite op.
func (d *Device) Supports(op ir.Op, attr any, in []ir.Type) bool {
	return gpu.Supports(op, attr, in)
}

// Stores reports that values lie in memory as they are computed.
func (d *Device) Stores(ir.Op, any, []ir.Type, ir.Place, tensor.DType) bool { return false }

// target is what programs are planned for.
func (d *Device) target() gpu.Target { return gpu.Target{Precision: d.precision, Sizes: sizes} }

// alive is why the device cannot be used any more.
func (d *Device) alive() error { return d.dead }

// lost says so where an error has made the context useless.
func (d *Device) lost(err error) error {
	if driver.Fatal(err) {
		return fmt.Errorf("cuda: device %d: %w: %w", d.properties.index, backend.ErrLost, err)
	}
	return fmt.Errorf("cuda: %w", err)
}

// failed is lost in the device's goroutine, which then remembers it.
func (d *Device) failed(err error) error {
	err = d.lost(err)
	if d.dead == nil && errors.Is(err, backend.ErrLost) {
		d.dead = err
	}
	return err
}

// Alloc gives zeroed memory.
func (d *Device) Alloc(bytes int) (backend.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cuda: %d bytes", bytes)
	}
	b := &buffer{dev: d, bytes: bytes}
	err := d.queue.do(func() (err error) {
		b.block, err = d.zeroed(bytes, useBuffer, "a buffer")
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// zeroed is obtain for memory that is to be zero.
func (d *Device) zeroed(bytes int, u use, what string) (*block, error) {
	b, err := d.obtain(bytes, u, what)
	if err != nil || bytes == 0 {
		return b, err
	}
	if err = driver.Of(cu.MemsetD8Async(b.at, 0, int64(bytes), d.compute.Stream)); err == nil {
		b.used, err = d.compute.mark(nil)
	}
	if err != nil {
		d.release(b)
		return nil, d.failed(err)
	}
	return b, nil
}

// AllocAll divides one stretch of zeroed memory into buffers, at the multiples
// of bytes at which allocations begin.
func (d *Device) AllocAll(sizes []int) ([]backend.Buffer, error) {
	division, err := backend.Divide(sizes, backend.PartAlign)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	var whole *block
	err = d.queue.do(func() (err error) {
		whole, err = d.zeroed(division.Bytes, useBuffer, fmt.Sprintf("%d buffers", len(sizes)))
		return err
	})
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
		return nil, fmt.Errorf("cuda: a part of %d bytes at %d of a buffer of %d", n, off, whole.bytes)
	}
	return &buffer{dev: d, block: whole.block, off: whole.off + off, bytes: n, readOnly: whole.readOnly, of: whole}, nil
}

// Import copies src to the device. Its bytes have been read when Import
// returns.
func (d *Device) Import(src weights.Data) (backend.Buffer, error) {
	b := &buffer{dev: d, bytes: len(src.Bytes), readOnly: true}
	t := &transfer{dev: d, done: make(chan struct{})}
	err := d.queue.do(func() (err error) {
		if b.block, err = d.obtain(b.bytes, useWeight, "imported weights"); err != nil {
			return err
		}
		if err = d.upload(t, b, 0, src.Bytes); err != nil {
			d.release(b.block)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}
