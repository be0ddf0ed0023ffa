//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// use is what memory is for.
type use uint8

const (
	useBuffer use = iota
	useWeight
	useArena
	usePages
	uses
)

var useNames = [uses]string{"buffers", "imported weights", "arenas and scratch memory of programs", "mapped files in place"}

// memory is what a device knows of its buffers. Nobody who holds its lock waits for a
// command.
type memory struct {
	mu      sync.Mutex
	closed  bool
	live    map[*block]struct{} // also those in limbo
	limbo   []*block            // freed, but perhaps still in use
	held    [uses]int64         // by what is not freed
	taken   int64               // by all that is live, files left out
	windows map[extent]*block   // on mapped files, those that tensors lie in
	copied  copied
}

// block is one buffer of Metal.
type block struct {
	slot     slot
	contents []byte // as the host has it
	bytes    int
	use      use
	// The tickets of the last command that reads or writes it, and that writes it.
	used, written atomic.Uint64
	// claims are of who is about to give a command on it.
	claims atomic.Int64
	window // of a mapped file
}

// blockAlign is what the sizes of blocks are multiples of: copies of their last bytes
// stay within.
const blockAlign = 16

// obtain allocates zeroed memory for a use; what says whom for. Errors:
// backend.ErrOutOfMemory.
func (d *Device) obtain(bytes int, u use, what string) (*block, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	b, err := d.allocate(bytes, u, what)
	if err != nil && d.limbo() {
		// What was freed comes back when the commands on it are done.
		d.drain()
		b, err = d.allocate(bytes, u, what)
	}
	return b, err
}

func (d *Device) allocate(bytes int, u use, what string) (*block, error) {
	d.reap()
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosedDevice
	}
	b := &block{bytes: bytes, use: u}
	if bytes == 0 {
		return b, nil
	}
	if int64(bytes) <= d.traits.maxBuffer && m.taken+int64(bytes) <= d.traits.workingSet {
		b.slot, b.contents = d.system.alloc((bytes + blockAlign - 1) / blockAlign * blockAlign)
	}
	if b.slot == 0 {
		return nil, d.refused(bytes, what)
	}
	m.live[b] = struct{}{}
	m.held[u] += int64(bytes)
	m.taken += int64(bytes)
	return b, nil
}

// refused explains why there is no memory.
func (d *Device) refused(bytes int, what string) error {
	var held []string
	for u, n := range d.memory.held {
		if n > 0 {
			held = append(held, fmt.Sprintf("%s %s", bytesize.Binary(n), useNames[u]))
		}
	}
	if held == nil {
		held = []string{"nothing"}
	}
	limit := ""
	if int64(bytes) > d.traits.maxBuffer {
		limit = fmt.Sprintf("; a buffer has at most %s", bytesize.Binary(d.traits.maxBuffer))
	}
	return fmt.Errorf("metal: %w: asked for %s for %s, the working set of the device is %s%s; this process holds %s",
		backend.ErrOutOfMemory, bytesize.Binary(int64(bytes)), what, bytesize.Binary(d.traits.workingSet), limit, strings.Join(held, ", "))
}

// release gives b back as soon as no command uses it.
func (d *Device) release(b *block) {
	if b == nil || b.slot == 0 {
		return
	}
	m := &d.memory
	m.mu.Lock()
	if !m.closed {
		m.held[b.use] -= int64(b.bytes)
		m.limbo = append(m.limbo, b)
	}
	m.mu.Unlock()
	d.reap()
}

// reap frees what no command uses any more.
func (d *Device) reap() {
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	kept := m.limbo[:0]
	for _, b := range m.limbo {
		if b.claims.Load() > 0 || !d.queue.reached(b.used.Load()) {
			kept = append(kept, b)
			continue
		}
		d.dispose(b)
	}
	clear(m.limbo[len(kept):])
	m.limbo = kept
}

// dispose gives a buffer back to Metal.
func (d *Device) dispose(b *block) {
	d.system.free(b.slot)
	delete(d.memory.live, b)
	if b.use != usePages {
		d.memory.taken -= int64(b.bytes)
	}
	b.keep, b.contents = nil, nil // the file may go
}

// limbo tells whether something waits to be given back.
func (d *Device) limbo() bool {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	return len(d.memory.limbo) > 0
}

// drain waits for the commands that were given.
func (d *Device) drain() {
	d.order.Lock()
	last := d.queue.issued
	d.order.Unlock()
	d.queue.await(last)
}

// forget gives everything back, when no command is under way.
func (d *Device) forget() {
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.live {
		d.dispose(b)
	}
	m.closed, m.limbo, m.windows = true, nil, nil
}

// buffer is memory that callers hold: a block, or a part of one.
type buffer struct {
	dev      *Device
	block    *block
	off      int // into the block
	bytes    int
	readOnly bool
	division *backend.Division // of a divided block, or nil
	of       *buffer           // what it is a part of, or nil
	freed    atomic.Bool
}

// Size is the number of bytes.
func (b *buffer) Size() int { return b.bytes }

// Free gives the memory back when the commands on it are done. Freeing twice does
// nothing.
func (b *buffer) Free() {
	if b.freed.Swap(true) || b.of != nil {
		return
	}
	switch {
	case b.block.use == usePages:
		b.dev.leave(b.block)
	case b.division == nil || b.division.Last():
		b.dev.release(b.block)
	}
}

// at is a place in the buffer, as kernels have it.
func (b *buffer) at(off int) gpu.Pointer { return b.block.slot.at(b.off + off) }

// contents is what the host has of the buffer.
func (b *buffer) contents(off, n int) []byte {
	if n == 0 {
		return nil
	}
	return b.block.contents[b.off+off:][:n]
}

// isFreed tells whether the buffer, or what it is a part of, was freed.
func (b *buffer) isFreed() bool { return b.freed.Load() || b.of != nil && b.of.freed.Load() }

// claim keeps the memory of a buffer until drop. Errors: backend.ErrClosed.
func (b *buffer) claim() error {
	b.block.claims.Add(1)
	if b.isFreed() {
		b.drop()
		return fmt.Errorf("metal: buffer: %w", backend.ErrClosed)
	}
	return nil
}

// drop ends a claim. Who was told to free the memory meanwhile has left that.
func (b *buffer) drop() {
	b.block.claims.Add(-1)
	if b.isFreed() {
		b.dev.reap()
	}
}

// bufferOf checks that b is a buffer of this device that may be used.
func (d *Device) bufferOf(b backend.Buffer) (*buffer, error) {
	c, ok := b.(*buffer)
	switch {
	case !ok:
		return nil, fmt.Errorf("metal: a %T is not a buffer of this backend", b)
	case c.isFreed():
		return nil, fmt.Errorf("metal: buffer: %w", backend.ErrClosed)
	case c.dev != d:
		return nil, fmt.Errorf("metal: a buffer of another device")
	}
	return c, nil
}
