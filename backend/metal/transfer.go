//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// The host copies at once if no pending command conflicts. Otherwise the copy becomes a later command between the
// buffer and staging memory, which the host fills before it or reads after it.

// Copies larger than stagedBytes wait for the commands instead. Up to idleBytes of staging memory, in up to idleStages
// pieces, are kept for later copies.
const (
	stagedBytes = 32 << 20
	idleBytes   = 4 << 20
	idleStages  = 8
	leastBytes  = 64 << 10
)

// blitAlign is the alignment of addresses and sizes in copies by commands.
const blitAlign = 4

// stages is memory for copies that is idle.
type stages struct {
	mu   sync.Mutex
	idle []*gpu.Block
}

// stage returns a block for a copy of n bytes, or nil if no memory is left.
func (d *Device) stage(n int) *gpu.Block {
	s := &d.stages
	s.mu.Lock()
	for i, b := range s.idle {
		if b.Bytes >= n && (b.Bytes <= leastBytes || b.Bytes <= 4*n) {
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
	b, err := d.Obtain(size, gpu.UseBuffer, "copies")
	if err != nil {
		return nil // then the copy waits
	}
	return b
}

// unstage recycles a block that no command uses.
func (d *Device) unstage(b *gpu.Block) {
	s := &d.stages
	s.mu.Lock()
	full := len(s.idle) == idleStages
	if !full && b.Bytes <= idleBytes {
		s.idle = append(s.idle, b)
		b = nil
	}
	s.mu.Unlock()
	d.Release(b)
}

// transfer is a pending copy: its fence and its completion.
type transfer struct {
	gpu.Transfer
	dev    *Device
	via    *gpu.Block
	dst    []byte // host destination of data from the device, after skip bytes
	before int
}

// Finish ends the copy.
func (t *transfer) Finish(err error) {
	if err != nil {
		err = t.dev.Failed(err)
	} else {
		copy(t.dst, t.via.Host[t.before:])
	}
	t.dev.unstage(t.via)
	t.End(err)
}

// Upload copies src into a buffer.
func (r runner) Upload(b *gpu.Buffer, off int, src []byte) (backend.Fence, error) {
	d := r.Device
	staged := len(src)
	if int(b.At(off)%blitAlign) != 0 || len(src)%blitAlign != 0 {
		staged = stagedBytes + 1 // bytes next to it must not change
	}
	return d.transfer(b, &b.Block.Used, staged, func() { copy(b.Host(off, len(src)), src) }, func(t *transfer) (work, error) {
		copy(t.via.Host, src)
		b.Block.Written.Store(d.queue.next())
		return d.system.copy(b.At(off), t.via.At, len(src))
	})
}

// Download copies from a buffer into dst.
func (r runner) Download(dst []byte, b *gpu.Buffer, off int) (backend.Fence, error) {
	d := r.Device
	before := int(b.At(off) % blitAlign)
	staged := (before + len(dst) + blitAlign - 1) / blitAlign * blitAlign
	return d.transfer(b, &b.Block.Written, staged, func() { copy(dst, b.Host(off, len(dst))) }, func(t *transfer) (work, error) {
		t.dst, t.before = dst, before
		return d.system.copy(t.via.At, b.At(off-before), staged)
	})
}

// transfer copies to or from b in the device's turn. The copy is immediate if the last conflicting command has ended
// or is waited for; otherwise a command copies through n bytes of staging.
func (d *Device) transfer(b *gpu.Buffer, last ticket, n int, copy func(), give func(*transfer) (work, error)) (backend.Fence, error) {
	d.order.Lock()
	defer d.order.Unlock()
	if d.closed {
		return nil, errClosedDevice
	}
	if err := d.Alive(); err != nil {
		return nil, err
	}
	if err := b.Open(); err != nil {
		return nil, err
	}
	if n == 0 {
		return backend.Done{}, nil
	}
	var via *gpu.Block
	if !d.queue.reached(last.Load()) {
		via = d.stage(n)
	}
	if via == nil {
		d.queue.await(last.Load())
		if err := d.Alive(); err != nil {
			return nil, err
		}
		copy()
		return backend.Done{}, nil
	}
	t := &transfer{Transfer: gpu.NewTransfer(), dev: d, via: via}
	b.Block.Used.Store(d.queue.next())
	via.Used.Store(d.queue.next())
	_ = d.queue.enter(context.Background())
	w, err := give(t)
	if err != nil {
		d.queue.leave()
		d.queue.add(work{}, nil) // its ticket
		d.unstage(via)
		return nil, d.Failed(fmt.Errorf("copying %d bytes: %w", n, err))
	}
	d.queue.add(w, t)
	return t, nil
}

// ticket is the number of a command that may be written while it is read.
type ticket interface{ Load() uint64 }
