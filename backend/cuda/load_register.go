//go:build cuda && linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/safetensors"
)

// errRegister: the driver does not pin the memory of a mapped file.
var errRegister = errors.New("the mapping cannot be registered")

// Attributes of a device that describe its support of host memory.
const (
	attributeHostPageTables   cu.DeviceAttribute = 100 // it reads pageable memory by the tables of the host
	attributeReadOnlyRegister cu.DeviceAttribute = 113
)

// has reports whether the device has the attribute. A driver that does not know the attribute counts as not having it.
func (d *Device) has(a cu.DeviceAttribute) bool {
	n, err := cu.Device(d.properties.index).Attribute(a)
	return err == nil && n != 0
}

// registrar is a safetensors.InPlaceSink. It pins windows of a mapped file's pages, and the device copies from them
// directly. Data that does not start at a page boundary is copied through the ring.
//
// Load makes the pages resident with many readers, while one goroutine here pins and copies them in order.
type registrar struct {
	*shipment
	ctx   context.Context
	stop  context.CancelCauseFunc // of reading, after a failure here
	runs  chan extent
	ended sync.WaitGroup
	open  sync.Once // the ring
	ring  *ring
	none  error // why there is no ring

	// Used only by the goroutine.
	readOnly bool
	windows  []window
	problem  error
}

// extent is memory of a file that is needed without a break.
type extent struct {
	data  []byte
	chunk safetensors.Chunk
}

// window is memory that is pinned until the copies from it have ended.
type window struct {
	mem []byte
	end *latch
}

// windowsAtOnce is the number of windows pinned at a time: one is pinned while the previous one is copied.
const windowsAtOnce = 2

// register copies from the mapping.
func (s *shipment) register(ctx context.Context) error {
	plan, err := safetensors.PlanLoad(s.views(), safetensors.LoadOptions{ChunkSize: s.slotBytes()})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &registrar{shipment: s, ctx: ctx, stop: stop, runs: make(chan extent, len(s.cargo)), readOnly: s.dev.has(attributeReadOnlyRegister)}
	r.ended.Go(r.work)
	read, err := plan.Load(ctx, r, safetensors.LoadOptions{Threads: readers()})
	if err != nil {
		stop(err)
	}
	close(r.runs)
	r.ended.Wait()
	if r.ring != nil {
		r.ring.under.Wait()
		if err == nil {
			err = r.ring.failed()
		}
	}
	if r.problem != nil {
		err = r.problem // which has ended the reading
	}
	s.stats.Pinned = max(s.stats.Pinned, min(windowsAtOnce*s.dev.window, plan.Read))
	s.stats.Read = fmt.Sprintf("%v, %d threads", read.Strategy, read.Threads)
	_ = safetensors.Advise(s.views(), safetensors.AdviseDontNeed) // which is advice
	return err
}

// InPlace accepts memory that starts at a page boundary.
func (r *registrar) InPlace(c *safetensors.Chunk, data []byte) (bool, error) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(data)))%uintptr(os.Getpagesize()) != 0 {
		return false, nil
	}
	r.runs <- extent{data, *c} // never blocks: there are at most as many runs as views
	return true, nil
}

// work pins and copies. After a failure it discards the rest.
func (r *registrar) work() {
	for x := range r.runs {
		for from := int64(0); r.problem == nil && from < int64(len(x.data)); from += r.dev.window {
			if r.problem = r.pin(&x, from, min(from+r.dev.window, int64(len(x.data)))); r.problem != nil {
				r.stop(r.problem)
			}
		}
	}
	for len(r.windows) > 0 {
		r.retire()
	}
}

// pin waits until few enough windows are pinned, then pins a window and enqueues its copy.
func (r *registrar) pin(x *extent, from, to int64) error {
	for len(r.windows) >= windowsAtOnce {
		r.retire()
	}
	if r.problem == nil {
		r.problem = context.Cause(r.ctx)
	}
	if r.problem != nil {
		return r.problem
	}
	page := int64(os.Getpagesize())
	w := window{unsafe.Slice(&x.data[from], (to-from+page-1)/page*page), newLatch()}
	copies := within(r.stretches(x.chunk.Parts), from, to)
	d := r.dev
	err := d.Do(func() error {
		if err := d.Alive(); err != nil {
			return err
		}
		if err := driver.HostRegister(w.mem, r.readOnly); err != nil {
			if driver.Fatal(err) {
				return d.Failed(err)
			}
			return fmt.Errorf("%w: %d bytes of %s: %w%s", errRegister, len(w.mem), x.chunk.File.Path(), err, r.hint())
		}
		r.count(copies)
		ticket, err := d.copyIn(w.mem, copies, w.end)
		if err != nil {
			_ = d.copies.Synchronize()
			_ = driver.HostUnregister(w.mem)
			return err
		}
		r.block.Copied.Store(ticket)
		return nil
	})
	if err != nil {
		return err
	}
	r.windows = append(r.windows, w)
	for _, p := range x.chunk.Parts {
		r.given[p.View] += max(0, min(p.At+p.Length, to)-max(p.At, from))
	}
	return nil
}

// hint returns the features that a device which cannot register mappings lacks.
func (r *registrar) hint() string {
	if r.readOnly {
		return ""
	}
	return "; the device does not pin memory that is only read (attribute 113 is 0)"
}

// retire waits for the copies from the oldest window, and unpins it.
func (r *registrar) retire() {
	w := r.windows[0]
	r.windows = r.windows[1:]
	err := w.end.result()
	if err != nil {
		err = r.dev.Failed(err)
	}
	if unpin := r.dev.Do(func() error { return driver.HostUnregister(w.mem) }); err == nil && unpin != nil {
		err = r.dev.Failed(unpin)
	}
	if r.problem == nil {
		r.problem = err
	}
}

// Slot returns a slot of the ring, for data that is not mapped.
func (r *registrar) Slot(ctx context.Context, c *safetensors.Chunk) ([]byte, error) {
	r.open.Do(func() {
		if r.none = r.openRing(); r.none == nil {
			r.ring = r.loading.ring
			r.ring.to = r.shipment
		}
	})
	if r.none != nil {
		return nil, r.none
	}
	return r.ring.Slot(ctx, c)
}

// Done enqueues the copy from a slot.
func (r *registrar) Done(c *safetensors.Chunk, data []byte) error { return r.ring.Done(c, data) }

var _ safetensors.InPlaceSink = (*registrar)(nil)
