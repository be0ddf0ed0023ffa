package gpu

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// Use is the purpose of an allocation.
type Use uint8

// The uses of memory.
const (
	UseBuffer Use = iota
	UseWeight
	UseArena
	UseReport // the host reads it while the device works
	UsePages  // of a mapped file, in place
	uses
)

var useNames = [uses]string{"buffers", "imported weights", "arenas and scratch memory of programs", "reports of kernels", "mapped files in place"}

// Block is one allocation.
type Block struct {
	At    Pointer // 0 for no bytes
	Host  []byte  // its contents, if the host can reach them
	Bytes int
	Use   Use
	Keep  any // the owner of the memory, if it is not the device

	// Used is the number, as the driver counts, of the last work that uses the block.
	// Copied and Written are that of the last copy, if the driver counts copies apart,
	// and of the last work that writes it.
	Used, Copied, Written atomic.Uint64
}

// memory tracks the blocks of a device. Its lock is never held while waiting for the device.
type memory struct {
	mu     sync.Mutex
	closed bool
	live   map[*Block]struct{} // including blocks in limbo
	limbo  []*Block            // freed, but perhaps still in use
	held   [uses]int64         // bytes not yet freed, by use
}

// Request allocates like Obtain, but from outside of the device's turn.
func (d *Device) Request(bytes int, u Use, what string) (b *Block, err error) {
	err = d.Do(func() (err error) {
		b, err = d.Obtain(bytes, u, what)
		return err
	})
	return b, err
}

// Obtain allocates memory for a use, in the device's turn; errors name it by what. Errors: backend.ErrOutOfMemory.
func (d *Device) Obtain(bytes int, u Use, what string) (*Block, error) {
	if err := d.Alive(); err != nil {
		return nil, err
	}
	b := &Block{Bytes: bytes, Use: u}
	if bytes == 0 {
		return b, nil
	}
	d.Reap()
	err := d.allocate(b)
	if full := Exhausted(""); errors.As(err, &full) && d.limbo() > 0 {
		// Freed memory becomes available when the work on it is done.
		if err := d.driver.Drain(); err != nil {
			return nil, d.Failed(err)
		}
		d.Reap()
		err = d.allocate(b)
	}
	if err != nil {
		return nil, d.refused(bytes, what, err)
	}
	return b, nil
}

func (d *Device) allocate(b *Block) error {
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := d.driver.Allocate(b); err != nil {
		return err
	}
	m.add(b)
	return nil
}

func (m *memory) add(b *Block) {
	m.live[b] = struct{}{}
	m.held[b.Use] += int64(b.Bytes)
}

// Adopt adds a block that the driver itself allocated. It is called in the device's turn.
func (d *Device) Adopt(b *Block) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	d.memory.add(b)
}

// refused explains why there is no memory.
func (d *Device) refused(bytes int, what string, err error) error {
	var full Exhausted
	if !errors.As(err, &full) {
		return d.Failed(fmt.Errorf("allocating %d bytes for %s: %w", bytes, what, err))
	}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	var held []string
	for u, n := range d.memory.held {
		if n > 0 {
			held = append(held, fmt.Sprintf("%s %s", bytesize.Binary(n), useNames[u]))
		}
	}
	if held == nil {
		held = []string{"nothing"}
	}
	return fmt.Errorf("%s: %w: asked for %s for %s, %s; this process holds %s",
		d.name, backend.ErrOutOfMemory, bytesize.Binary(int64(bytes)), what, full, strings.Join(held, ", "))
}

// Release frees b once no work uses it.
func (d *Device) Release(b *Block) {
	if b == nil || b.At == 0 {
		return
	}
	m := &d.memory
	m.mu.Lock()
	if !m.closed {
		m.held[b.Use] -= int64(b.Bytes)
		m.limbo = append(m.limbo, b)
	}
	m.mu.Unlock()
	d.Reap()
}

// Reap frees blocks that are released and idle. Drivers call it after work has ended, from a context in which
// Driver.Idle and Driver.Free may be called.
func (d *Device) Reap() {
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	kept := m.limbo[:0]
	for _, b := range m.limbo {
		if !d.driver.Idle(b) {
			kept = append(kept, b)
			continue
		}
		d.free(b)
	}
	clear(m.limbo[len(kept):])
	m.limbo = kept
}

// free returns a block to the driver. The caller holds the lock of memory.
func (d *Device) free(b *Block) {
	d.driver.Free(b)
	delete(d.memory.live, b)
	b.Keep, b.Host = nil, nil
}

// forget frees all blocks. No work may be pending.
func (d *Device) forget() {
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for b := range m.live {
		d.free(b)
	}
	m.closed, m.limbo = true, nil
}

// limbo counts the blocks that are freed and perhaps still in use.
func (d *Device) limbo() int {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	return len(d.memory.limbo)
}

// Usage counts the resources that a device holds.
type Usage struct {
	Held     int64 // bytes that are not freed
	Limbo    int   // blocks that are freed, but perhaps still in use
	Programs int   // that are not closed
}

// Usage returns the resources that the device holds. It is called in the device's turn or after the device is closed.
func (d *Device) Usage() Usage {
	u := Usage{Limbo: d.limbo(), Programs: len(d.programs)}
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	for _, bytes := range d.memory.held {
		u.Held += bytes
	}
	return u
}
