//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// use is what memory is for.
type use uint8

const (
	useBuffer use = iota
	useWeight
	useArena
	uses
)

var useNames = [uses]string{"buffers", "imported weights", "arenas and scratch memory of programs"}

// memory is what the device's goroutine knows of allocations.
type memory struct {
	live  map[*block]struct{}
	limbo []*block // freed, but perhaps still in use
	held  [uses]int64
}

// block is one allocation. Its fields belong to the device's goroutine.
type block struct {
	at    cu.DevicePtr
	bytes int
	use   use
	// The last work on the two streams that reads or writes it.
	used, copied uint64
}

// obtain allocates bytes for a use; what says whom for. Errors:
// backend.ErrOutOfMemory.
func (d *Device) obtain(bytes int, u use, what string) (*block, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	b := &block{bytes: bytes, use: u}
	if bytes == 0 {
		return b, nil
	}
	d.reap()
	at, err := cu.MemAlloc(int64(bytes))
	if errors.Is(driver.Of(err), driver.OutOfMemory) && len(d.memory.limbo) > 0 {
		// What was freed comes back when the work on it is done.
		if err := d.drain(); err != nil {
			return nil, err
		}
		d.reap()
		at, err = cu.MemAlloc(int64(bytes))
	}
	if err != nil {
		return nil, d.refused(bytes, what, driver.Of(err))
	}
	b.at = at
	d.memory.live[b] = struct{}{}
	d.memory.held[u] += int64(bytes)
	return b, nil
}

// refused explains why there is no memory.
func (d *Device) refused(bytes int, what string, err error) error {
	if !errors.Is(err, driver.OutOfMemory) {
		return d.failed(fmt.Errorf("allocating %d bytes for %s: %w", bytes, what, err))
	}
	free, total, _ := cu.MemInfo()
	var held []string
	for u, n := range d.memory.held {
		if n > 0 {
			held = append(held, fmt.Sprintf("%s %s", bytesize.Binary(n), useNames[u]))
		}
	}
	if held == nil {
		held = []string{"nothing"}
	}
	return fmt.Errorf("cuda: %w: asked for %s for %s, %s of %s are free on device %d; this process holds %s",
		backend.ErrOutOfMemory, bytesize.Binary(int64(bytes)), what, bytesize.Binary(free), bytesize.Binary(total), d.properties.index, strings.Join(held, ", "))
}

// release gives b back as soon as the work on it is done.
func (d *Device) release(b *block) {
	if b == nil || b.at == 0 {
		return
	}
	d.memory.held[b.use] -= int64(b.bytes)
	d.memory.limbo = append(d.memory.limbo, b)
	d.reap()
}

// reap frees what nothing uses any more. cuMemFree waits for the device, so it
// is called only once the work on a block is known to be done.
func (d *Device) reap() {
	kept := d.memory.limbo[:0]
	for _, b := range d.memory.limbo {
		if !d.compute.reached(b.used) || !d.copies.reached(b.copied) {
			kept = append(kept, b)
			continue
		}
		_ = cu.MemFree(b.at) // fails only where the context is lost, with its memory
		delete(d.memory.live, b)
	}
	clear(d.memory.limbo[len(kept):])
	d.memory.limbo = kept
}

// drain waits for the work under way.
func (d *Device) drain() error {
	for _, s := range []*stream{d.compute, d.copies} {
		l := newLatch()
		if _, err := s.mark(l); err != nil {
			return d.failed(err)
		}
		if err := l.result(); err != nil {
			return d.failed(err)
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

func (l *latch) finish(err error) {
	l.err = err
	close(l.done)
}

func (l *latch) result() error {
	<-l.done
	return l.err
}

// buffer is device memory that callers hold: a block, or a part of one.
type buffer struct {
	dev      *Device
	block    *block
	off      int // into the block
	bytes    int
	readOnly bool
	division *backend.Division // of a divided block, or nil
	of       *buffer           // what it is a part of, or nil
	freed    atomic.Bool
	gone     bool // of the device's goroutine
}

// Size is the number of bytes.
func (b *buffer) Size() int { return b.bytes }

// Free gives the memory back when the work on it is done. Freeing twice does
// nothing.
func (b *buffer) Free() {
	if b.freed.Swap(true) {
		return
	}
	// A device that is closed has taken its memory back.
	_ = b.dev.queue.send(freeing{b})
}

// freeing is the job that ends a buffer.
type freeing struct{ *buffer }

func (f freeing) perform() {
	f.gone = true
	if f.of != nil {
		return
	}
	if f.division == nil || f.division.Last() {
		f.dev.release(f.block)
	}
}

// address is where the buffer begins.
func (b *buffer) address() cu.DevicePtr {
	if b.block.at == 0 {
		return 0
	}
	return b.block.at + cu.DevicePtr(b.off)
}

// bufferOf checks that b is a buffer of this device that may be used.
func (d *Device) bufferOf(b backend.Buffer) (*buffer, error) {
	c, ok := b.(*buffer)
	switch {
	case !ok:
		return nil, fmt.Errorf("cuda: a %T is not a buffer of this backend", b)
	case c.freed.Load(), c.of != nil && c.of.freed.Load():
		return nil, fmt.Errorf("cuda: buffer: %w", backend.ErrClosed)
	case c.dev != d:
		return nil, fmt.Errorf("cuda: a buffer of another device")
	}
	return c, nil
}
