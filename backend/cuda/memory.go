//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// Allocate allocates memory of the device, or pinned memory of the host for reports.
func (r runner) Allocate(b *gpu.Block) (err error) {
	if b.Use == gpu.UseReport {
		if b.Host, err = driver.HostAlloc(b.Bytes); err != nil {
			return r.exhausted(err)
		}
		clear(b.Host)
		b.At = pointerTo(b.Host)
		return nil
	}
	at, err := cu.MemAlloc(int64(b.Bytes))
	if err != nil {
		return r.exhausted(driver.Of(err))
	}
	b.At = gpu.Pointer(at)
	if b.Use == gpu.UseBuffer {
		if err := r.clear(b); err != nil {
			_ = cu.MemFree(at)
			b.At = 0
			return err
		}
	}
	return nil
}

// clear fills a block with zeros.
func (d *Device) clear(b *gpu.Block) error {
	err := driver.Of(cu.MemsetD8Async(cu.DevicePtr(b.At), 0, int64(b.Bytes), d.compute.Stream))
	if err != nil {
		return err
	}
	ticket, err := d.compute.mark(nil)
	b.Used.Store(ticket)
	return err
}

// exhausted adds the state of the device's memory if err is an out-of-memory error.
func (d *Device) exhausted(err error) error {
	if !errors.Is(err, driver.OutOfMemory) {
		return err
	}
	free, total, _ := cu.MemInfo()
	return gpu.Exhausted(fmt.Sprintf("%s of %s are free on device %d", bytesize.Binary(free), bytesize.Binary(total), d.properties.index))
}

// Free frees the memory of b. cuMemFree waits for the device, so b must be idle. It fails only if the context is lost,
// and the memory with it.
func (r runner) Free(b *gpu.Block) {
	if b.Use == gpu.UseReport {
		_ = driver.HostFree(b.Host)
		return
	}
	_ = cu.MemFree(cu.DevicePtr(b.At))
}

// Idle reports whether both streams are done with a block.
func (r runner) Idle(b *gpu.Block) bool {
	return r.compute.reached(b.Used.Load()) && r.copies.reached(b.Copied.Load())
}

// Drain waits for all pending work.
func (r runner) Drain() error {
	for _, s := range []*stream{r.compute, r.copies} {
		l := newLatch()
		if _, err := s.mark(l); err != nil {
			return err
		}
		if err := l.result(); err != nil {
			return err
		}
	}
	return nil
}

// latch is a completion that can be waited for.
type latch struct {
	done chan struct{}
	err  error
}

func newLatch() *latch { return &latch{done: make(chan struct{})} }

// Finish opens the latch.
func (l *latch) Finish(err error) {
	l.err = err
	close(l.done)
}

func (l *latch) result() error {
	<-l.done
	return l.err
}

// pointerTo returns the device address of pinned memory, which equals its host address.
func pointerTo(b []byte) gpu.Pointer {
	return gpu.Pointer(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
