//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// Device is an Apple GPU.
type Device struct {
	gpu.Device
	system  *system
	traits  traits
	shaders *shaders
	queue   *queue
	pace    *pace
	stages  stages
	copied  copied
	loads   loads
	taken   int64 // bytes of all blocks, mapped files left out; under the lock of memory

	// order is held during a turn and so determines the order of commands. It guards the fields below.
	order   sync.Mutex
	closed  bool
	windows map[extent]*window // windows on mapped files that contain tensors in use
}

// runner is the Device as the driver of a gpu.Device.
type runner struct{ *Device }

var errClosedDevice = fmt.Errorf("metal: device: %w", backend.ErrClosed)

// Open opens the GPU after checking a small computation on it. Errors: backend.ErrUnavailable if there is no GPU or
// its results are wrong; backend.ErrLoad.
func Open(o backend.Options) (*Device, error) {
	switch {
	case o.BatchInvariant:
		return nil, fmt.Errorf("%w: batch invariance; expected the CPU, which has it", backend.ErrUnavailable)
	case o.Index != 0:
		return nil, fmt.Errorf("%w: device %d; there is 1", backend.ErrUnavailable, o.Index)
	case o.Load != backend.LoadAuto && o.Load != backend.LoadPlain:
		return nil, fmt.Errorf("%w %v: they are used in place, where they are mapped; expected auto or plain", backend.ErrLoad, o.Load)
	}
	pace, err := newPace()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	s, err := openSystem()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d := &Device{system: s, traits: s.traits(), pace: pace, windows: map[extent]*window{}}
	d.Init(backend.Metal, runner{d}, d.target)
	d.Precision = o.Precision
	f, err := probe(s, d.traits)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d.shaders = newShaders(s, f)
	d.queue = newQueue(d.pace, d.Reap)
	if err := d.selfTest(); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("%w: %w: %s: %w", backend.ErrUnavailable, backend.ErrFaulty, d.traits.name, err)
	}
	d.Profile = o.Profile // records the launches of users
	return d, nil
}

// Close waits for pending commands and frees the memory. Remaining buffers and executables become unusable.
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
	d.End()
	d.shaders.close()
	d.system.close()
	return nil
}

// Info describes the GPU.
func (d *Device) Info() backend.Info {
	i := d.traits.info()
	i.Precision = d.Precision
	i.Detail += ", " + d.shaders.form.String()
	if c := d.copied.String(); c != "" {
		i.Detail += "; " + c
	}
	return i
}

// target returns the target for which programs are planned.
func (d *Device) target() gpu.Target {
	t := gpu.MetalTarget(d.Precision, d.traits.threads)
	t.Tables = d.shaders.form.tables
	t.Thresholds = gpu.ThresholdsOf(backend.Metal + " " + d.traits.name)
	return t
}

// Address returns the address by which kernels reach memory through a table.
func (r runner) Address(p gpu.Pointer) uint64 { return r.system.address(p) }

// Send runs j when its turn comes.
func (r runner) Send(j gpu.Job) error {
	r.order.Lock()
	defer r.order.Unlock()
	if r.closed {
		return errClosedDevice
	}
	j.Perform()
	return nil
}
