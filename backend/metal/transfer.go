//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
)

// The host copies at once where no command under way is in its way. Else a copy becomes
// a command behind these, between the buffer and memory of the device that the host has
// filled, or empties when it is done.

// Copies of more bytes than stagedBytes wait for the commands instead. Memory of up to
// idleBytes is kept for the next copy, in up to idleStages pieces.
const (
	stagedBytes = 32 << 20
	idleBytes   = 4 << 20
	idleStages  = 8
	leastBytes  = 64 << 10
)

// blitAlign is what places and sizes of copies by commands are multiples of.
const blitAlign = 4

// stages is memory for copies that is idle.
type stages struct {
	mu   sync.Mutex
	idle []*block
}

// stage gives memory for a copy of n bytes, nil where there is none.
func (d *Device) stage(n int) *block {
	s := &d.stages
	s.mu.Lock()
	for i, b := range s.idle {
		if b.bytes >= n && (b.bytes <= leastBytes || b.bytes <= 4*n) {
			last := len(s.idle) - 1
			s.idle[i], s.idle = s.idle[last], s.idle[:last]
			s.mu.Unlock()
			return b
		}
	}
	s.mu.Unlock()
	if n > stagedBytes {
		return nil
	}
	size := leastBytes
	for size < n {
		size *= 2
	}
	b, err := d.allocate(size, useBuffer, "copies")
	if err != nil {
		return nil // then the copy waits
	}
	return b
}

// unstage takes it back, when no command uses it.
func (d *Device) unstage(b *block) {
	s := &d.stages
	s.mu.Lock()
	full := len(s.idle) == idleStages
	if !full && b.bytes <= idleBytes {
		s.idle = append(s.idle, b)
		b = nil
	}
	s.mu.Unlock()
	d.release(b)
}

// transfer is a copy under way: its fence.
type transfer struct {
	dev    *Device
	via    *block
	dst    []byte // of the host, for what comes from the device, after so many bytes
	before int
	done   chan struct{}
	err    error
}

// finish ends the copy.
func (t *transfer) finish(err error) {
	if err != nil {
		t.err = t.dev.failed(err)
	} else {
		copy(t.dst, t.via.contents[t.before:])
	}
	t.dev.unstage(t.via)
	close(t.done)
}

// Wait waits for the copy.
func (t *transfer) Wait(ctx context.Context) error {
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

// Upload copies src, which is the caller's again when Upload returns.
func (d *Device) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	b, err := d.bufferOf(dst)
	if err != nil {
		return nil, err
	}
	if b.readOnly {
		return nil, fmt.Errorf("metal: upload into an imported buffer")
	}
	if off < 0 || off > b.bytes || len(src) > b.bytes-off {
		return nil, fmt.Errorf("metal: upload of %d bytes at %d into a buffer of %d", len(src), off, b.bytes)
	}
	staged := len(src)
	if int(b.at(off)%blitAlign) != 0 || len(src)%blitAlign != 0 {
		staged = stagedBytes + 1 // what is beside it stays as it is
	}
	return d.transfer(b, &b.block.used, staged, func() { copy(b.contents(off, len(src)), src) }, func(t *transfer) (work, error) {
		copy(t.via.contents, src)
		b.block.written.Store(d.queue.next())
		return d.system.copy(b.at(off), t.via.slot.at(0), len(src))
	})
}

// Download copies into dst, which is complete when the fence is reached.
func (d *Device) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	b, err := d.bufferOf(src)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > b.bytes || len(dst) > b.bytes-off {
		return nil, fmt.Errorf("metal: download of %d bytes at %d from a buffer of %d", len(dst), off, b.bytes)
	}
	before := int(b.at(off) % blitAlign)
	staged := (before + len(dst) + blitAlign - 1) / blitAlign * blitAlign
	return d.transfer(b, &b.block.written, staged, func() { copy(dst, b.contents(off, len(dst))) }, func(t *transfer) (work, error) {
		t.dst, t.before = dst, before
		return d.system.copy(t.via.slot.at(0), b.at(off-before), staged)
	})
}

// transfer copies to or from b in its turn: at once, where the last command that is in
// the way has ended or is waited for, else by a command, through n bytes.
func (d *Device) transfer(b *buffer, last ticket, n int, copy func(), give func(*transfer) (work, error)) (backend.Fence, error) {
	d.order.Lock()
	defer d.order.Unlock()
	if d.closed {
		return nil, errClosedDevice
	}
	if err := d.alive(); err != nil {
		return nil, err
	}
	if err := b.claim(); err != nil {
		return nil, err
	}
	defer b.drop()
	if n == 0 {
		return backend.Done{}, nil
	}
	var via *block
	if !d.queue.reached(last.Load()) {
		via = d.stage(n)
	}
	if via == nil {
		d.queue.await(last.Load())
		if err := d.alive(); err != nil {
			return nil, err
		}
		copy()
		return backend.Done{}, nil
	}
	t := &transfer{dev: d, via: via, done: make(chan struct{})}
	b.block.used.Store(d.queue.next())
	via.used.Store(d.queue.next())
	w, err := give(t)
	if err != nil {
		d.queue.add(work{}, nil) // its ticket
		d.unstage(via)
		return nil, d.failed(fmt.Errorf("copying %d bytes: %w", n, err))
	}
	d.queue.add(w, t)
	return t, nil
}

// ticket is the number of a command that may be written while it is read.
type ticket interface{ Load() uint64 }
