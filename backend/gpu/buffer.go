package gpu

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
)

// Buffer is memory that callers hold: a block, or a part of one.
type Buffer struct {
	Block *Block

	dev      *Device
	off      int // into the block
	bytes    int
	readOnly bool
	tenants  Tenants // of a block that is divided, or nil
	of       *Buffer // that this is a part of, or nil
	freed    atomic.Bool
	gone     bool // of the device's turn
}

// Tenants are buffers that share a block.
type Tenants interface {
	// Release is called once for each buffer, when it is freed, in the device's turn. It
	// returns true for the last one.
	Release() bool
}

// Weight makes a read-only buffer of a part of a block that it may share with others.
func (d *Device) Weight(b *Block, off, bytes int, t Tenants) *Buffer {
	return &Buffer{dev: d, Block: b, off: off, bytes: bytes, readOnly: true, tenants: t}
}

// Size returns the number of bytes.
func (b *Buffer) Size() int { return b.bytes }

// At returns the place of a byte of the buffer.
func (b *Buffer) At(off int) Pointer {
	if b.Block.At == 0 {
		return 0
	}
	return b.Block.At + Pointer(b.off+off)
}

// Host returns n bytes of the buffer in host memory.
func (b *Buffer) Host(off, n int) []byte {
	if n == 0 {
		return nil
	}
	return b.Block.Host[b.off+off:][:n]
}

// Free releases the memory when the work on it is done. Freeing twice does nothing.
func (b *Buffer) Free() {
	if b.freed.Swap(true) {
		return
	}
	// A device that is closed has taken its memory back.
	_ = b.dev.driver.Send(freeing{b})
}

// freeing is the job that ends a buffer.
type freeing struct{ *Buffer }

func (f freeing) Perform() {
	f.gone = true
	if f.of == nil && (f.tenants == nil || f.tenants.Release()) {
		f.dev.Release(f.Block)
	}
}

// Open returns backend.ErrClosed if the buffer, or the one that it is a part of, was
// freed in an earlier turn.
func (b *Buffer) Open() error {
	if b.gone || b.of != nil && b.of.gone {
		return b.dev.closed("buffer")
	}
	return nil
}

func (d *Device) closed(what string) error {
	return fmt.Errorf("%s: %s: %w", d.name, what, backend.ErrClosed)
}

// BufferOf checks that b is a buffer of this device that may be used.
func (d *Device) BufferOf(b backend.Buffer) (*Buffer, error) {
	c, ok := b.(*Buffer)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: a %T is not a buffer of this backend", d.name, b)
	case c.freed.Load(), c.of != nil && c.of.freed.Load():
		return nil, d.closed("buffer")
	case c.dev != d:
		return nil, fmt.Errorf("%s: a buffer of another device", d.name)
	}
	return c, nil
}

// Transfer is the fence of a pending copy.
type Transfer struct {
	done chan struct{}
	err  error
}

// NewTransfer returns a Transfer that is not done yet.
func NewTransfer() Transfer { return Transfer{done: make(chan struct{})} }

// End ends the copy.
func (t *Transfer) End(err error) {
	t.err = err
	close(t.done)
}

// Wait waits for the copy.
func (t *Transfer) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	default:
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
