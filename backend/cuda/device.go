//go:build cuda && linux

package cuda

import (
	"fmt"
	"os"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// EnvGraph, set to 0, has programs run launch by launch instead of as CUDA
// graphs.
const EnvGraph = "LORAFUSE_CUDA_GRAPH"

// sizes are the sizes that programs are planned with. It is a variable for tests.
var sizes = gpu.DefaultSizes()

// Device is a GPU.
type Device struct {
	gpu.Device
	properties properties
	queue      *queue

	replays                 bool // see [backend.Info]
	load                    backend.LoadMode
	loads                   loads
	ringSlot, window, trial int64 // bytes
	staging                 int

	// Only the queue's goroutine uses the following fields.
	context         cu.CUContext
	compute, copies *stream
	slots           chan *slot
	pinned          [][]byte
	images          images
	graphs          bool // runs may become graphs
}

// runner is the Device as the driver of a gpu.Device.
type runner struct{ *Device }

// Open opens a GPU. Errors: backend.ErrUnavailable if there is no driver, no such device, or the device is too old.
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
	graphs := os.Getenv(EnvGraph) != "0"
	d := &Device{
		properties: p, graphs: graphs, replays: graphs,
		load: o.Load, ringSlot: ringSlotBytes, window: windowBytes, trial: trialBytes, staging: gpu.ConvertBytes,
	}
	d.Init(backend.CUDA, runner{d}, d.target)
	d.Precision, d.Profile = o.Precision, o.Profile
	if d.queue, err = newQueue(d.begin, d.Reap, d.end); err != nil {
		return nil, fmt.Errorf("%w: device %d %s: %w", backend.ErrUnavailable, p.index, p.name, err)
	}
	return d, nil
}

// begin retains the primary context, which stays current in the queue's thread.
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
		d.slots <- &slot{mem: mem, dev: d}
	}
	d.images = newImages()
	return nil
}

// end releases all resources, including buffers that callers have not freed.
func (d *Device) end() {
	for _, s := range []*stream{d.compute, d.copies} {
		if s != nil {
			s.close()
		}
	}
	d.Device.End()
	for _, mem := range d.pinned {
		_ = driver.HostFree(mem)
	}
	d.pinned = nil
	d.images.unload()
	_ = cu.Device(d.properties.index).ReleasePrimaryCtx()
}

// Close waits for pending work and frees the GPU's memory. Remaining buffers and executables become unusable.
func (d *Device) Close() error {
	d.loads.close()
	d.queue.close()
	return nil
}

// Info describes the GPU. At precision bf16 it reports tensor core rates, otherwise float32 rates. A MIG instance has
// its own rates.
func (d *Device) Info() backend.Info {
	i := d.properties.info()
	i.Precision, i.Replays = d.Precision, d.replays
	i.Rated = backend.Peak{FlopsPerSecond: d.properties.flops(d.Precision), BytesPerSecond: d.properties.bandwidth}
	return i
}

// target returns the target for which programs are planned.
func (d *Device) target() gpu.Target {
	t := gpu.Target{Precision: d.Precision, Sizes: sizes}
	p := &d.properties
	t.Thresholds = gpu.ThresholdsOf(fmt.Sprintf("%s %d.%d %s", backend.CUDA, p.capability/10, p.capability%10, p.name))
	return t
}

// Send runs j in the queue's goroutine.
func (r runner) Send(j gpu.Job) error { return r.queue.send(j) }

// Explain reports whether an error has made the context unusable.
func (r runner) Explain(err error) error {
	if driver.Fatal(err) {
		return fmt.Errorf("cuda: device %d: %w: %w", r.properties.index, backend.ErrLost, err)
	}
	return fmt.Errorf("cuda: %w", err)
}

// Import copies src to the device. Its bytes have been read when Import
// returns.
func (d *Device) Import(src weights.Data) (backend.Buffer, error) {
	var b *gpu.Buffer
	t := &transfer{Transfer: gpu.NewTransfer()}
	err := d.Do(func() error {
		block, err := d.Obtain(len(src.Bytes), gpu.UseWeight, "imported weights")
		if err != nil {
			return err
		}
		b = d.Weight(block, 0, len(src.Bytes), nil)
		if err = d.upload(t, b, 0, src.Bytes); err != nil {
			d.Release(block)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}
