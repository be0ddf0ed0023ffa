//go:build cuda && linux

package cuda

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/safetensors"
)

// ring is a safetensors.Sink of pinned slots: files are read into them and the device copies from them. A slot belongs
// to a reader, then to the device's goroutine, then to the copy. It is free when the event after the copy has
// completed.
type ring struct {
	dev   *Device
	of    *loading
	slots []*ringSlot // the slots pinned so far; guarded by mu when accessed outside the device's goroutine
	free  chan *ringSlot
	under sync.WaitGroup // slots that were given to the device
	to    *shipment      // the current upload

	broken  chan struct{} // closed with the first failure
	mu      sync.Mutex
	failure error
}

// ringSlot is a slot with the job that copies from it and the callback for its end.
type ringSlot struct {
	ring   *ring
	mem    []byte
	copies []stretch
}

// byRing reads the files into the ring.
func (s *shipment) byRing(ctx context.Context) error {
	if err := s.openRing(); err != nil {
		return err
	}
	plan, err := safetensors.PlanLoad(s.views(), safetensors.LoadOptions{ChunkSize: s.slotBytes()})
	if err != nil {
		return err
	}
	s.ring.to = s
	read, err := plan.Load(ctx, s.ring, safetensors.LoadOptions{Threads: readers()})
	s.ring.under.Wait()
	if err == nil {
		err = s.ring.failed()
	}
	if read.Bytes > 0 {
		s.stats.Read = fmt.Sprintf("%v, %d threads", read.Strategy, read.Threads)
	}
	return err
}

// openRing pins one slot if necessary, and pins the others while it is being filled, since pinning takes as long as
// copying. If the system limits pinned memory, the ring is shorter.
func (l *loading) openRing() error {
	if l.ring != nil {
		return nil
	}
	bytes := int(l.slotBytes())
	count := int(min(int64(readers()+beyondReaders), l.total/int64(bytes)+1))
	r := &ring{dev: l.dev, free: make(chan *ringSlot, count), broken: make(chan struct{}), of: l}
	err := l.dev.Do(func() error {
		if err := l.dev.Alive(); err != nil {
			return err
		}
		if err := r.grow(bytes); err != nil {
			return l.dev.Failed(fmt.Errorf("%w: pinned memory, %d bytes of it: %w", backend.ErrOutOfMemory, bytes, err))
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.ring = r
	for range count - 1 {
		if err := l.dev.queue.send(growing{r, bytes}); err != nil {
			return err
		}
	}
	return nil
}

// growing is the job that pins another slot.
type growing struct {
	ring  *ring
	bytes int
}

func (g growing) Perform() { _ = g.ring.grow(g.bytes) } // there is one already

// grow pins a slot, in the device's goroutine.
func (r *ring) grow(bytes int) error {
	mem, err := driver.HostAlloc(bytes)
	if err != nil {
		return err
	}
	s := &ringSlot{ring: r, mem: mem}
	r.mu.Lock()
	r.slots = append(r.slots, s)
	r.mu.Unlock()
	r.of.stats.Pinned = max(r.of.stats.Pinned, int64(len(r.slots)*bytes))
	r.free <- s
	return nil
}

// close frees the memory. After a failure, copies from it may still be pending.
func (r *ring) close() {
	if r == nil {
		return
	}
	// Loads end before their device closes, so the queue still runs.
	_ = r.dev.Do(func() error {
		_ = r.dev.copies.Synchronize()
		for _, s := range r.slots {
			_ = driver.HostFree(s.mem)
		}
		r.slots = nil
		return nil
	})
}

// Slot waits for a free slot.
func (r *ring) Slot(ctx context.Context, _ *safetensors.Chunk) ([]byte, error) {
	select {
	case s := <-r.free:
		return s.mem, r.failed()
	case <-r.broken: // slots may not come back
		return nil, r.failed()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Done enqueues the copy from a slot.
func (r *ring) Done(c *safetensors.Chunk, data []byte) error {
	if err := r.failed(); err != nil {
		return err
	}
	s := r.slotOf(data)
	if s == nil {
		return fmt.Errorf("cuda: a slot that is not of this ring")
	}
	s.copies = r.to.stretches(c.Parts)
	r.under.Add(1)
	err := r.dev.queue.send(s)
	if err != nil {
		r.under.Done()
	}
	return err
}

// slotOf finds the slot that data is of.
func (r *ring) slotOf(data []byte) *ringSlot {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.slots {
		if unsafe.SliceData(s.mem) == unsafe.SliceData(data) {
			return s
		}
	}
	return nil
}

// Perform enqueues the copies from the slot. The slot is free when the last one has ended. If some could not be
// enqueued, the slot is never reused.
func (s *ringSlot) Perform() {
	r, block := s.ring, s.ring.to.block
	r.to.count(s.copies)
	// From the mark on the slot may be another reader's.
	ticket, err := r.dev.copyIn(s.mem, s.copies, s)
	if err != nil {
		r.fail(err)
		r.under.Done()
		return
	}
	block.Copied.Store(ticket)
}

// Finish is called when the copies have ended.
func (s *ringSlot) Finish(err error) {
	if err != nil {
		s.ring.fail(s.ring.dev.Failed(err))
	}
	s.ring.free <- s
	s.ring.under.Done()
}

// copyIn enqueues copies out of pinned memory; end is told when they are done.
func (d *Device) copyIn(mem []byte, copies []stretch, end gpu.Completion) (ticket uint64, err error) {
	if err := d.Alive(); err != nil {
		return 0, err
	}
	for _, c := range copies {
		if err := driver.ToDevice(c.to, mem[c.from:c.from+c.n], d.copies.Stream); err != nil {
			return 0, d.Failed(err)
		}
	}
	if ticket, err = d.copies.mark(end); err != nil {
		return 0, d.Failed(err)
	}
	return ticket, nil
}

func (r *ring) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
		close(r.broken)
	}
}

func (r *ring) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

var _ safetensors.Sink = (*ring)(nil)
