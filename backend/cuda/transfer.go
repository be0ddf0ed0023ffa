//go:build cuda && linux

package cuda

import (
	"context"
	"fmt"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
)

// Copies go through slots of pinned memory, which the device reads and writes
// without the host: while one is on its way, the next is filled or emptied.
const (
	slots     = 4
	slotBytes = 2 << 20
)

// slot is pinned memory for one piece of a copy.
type slot struct {
	mem []byte
	dst []byte    // what it goes to when it has come from the device
	end *transfer // if this is the last piece
	all *transfer
	to  chan *slot // where it is free again
}

// finish empties the slot.
func (s *slot) finish(err error) {
	if err != nil && s.all.err == nil {
		s.all.err = s.all.dev.lost(err)
	}
	if err == nil {
		copy(s.dst, s.mem)
	}
	end := s.end
	s.dst, s.end, s.all = nil, nil, nil
	s.to <- s
	if end != nil {
		close(end.done)
	}
}

// transfer is a copy under way: its fence.
type transfer struct {
	dev  *Device
	done chan struct{}
	err  error
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
		return nil, fmt.Errorf("cuda: upload into an imported buffer")
	}
	if off < 0 || off > b.bytes || len(src) > b.bytes-off {
		return nil, fmt.Errorf("cuda: upload of %d bytes at %d into a buffer of %d", len(src), off, b.bytes)
	}
	return d.transfer(b, func(t *transfer) error { return d.upload(t, b, off, src) })
}

// Download copies into dst, which is complete when the fence is reached.
func (d *Device) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	b, err := d.bufferOf(src)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > b.bytes || len(dst) > b.bytes-off {
		return nil, fmt.Errorf("cuda: download of %d bytes at %d from a buffer of %d", len(dst), off, b.bytes)
	}
	return d.transfer(b, func(t *transfer) error { return d.download(t, b, off, dst) })
}

// transfer starts a copy of b in the device's goroutine.
func (d *Device) transfer(b *buffer, start func(*transfer) error) (backend.Fence, error) {
	t := &transfer{dev: d, done: make(chan struct{})}
	err := d.queue.do(func() error {
		if b.gone {
			return fmt.Errorf("cuda: buffer: %w", backend.ErrClosed)
		}
		return start(t)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// upload enqueues the pieces of src. Each is in pinned memory when it returns.
func (d *Device) upload(t *transfer, b *buffer, off int, src []byte) error {
	return d.pieces(t, b, len(src), func(s *slot, from, n int) error {
		s.mem = s.mem[:n]
		copy(s.mem, src[from:])
		return driver.ToDevice(b.address()+cu.DevicePtr(off+from), s.mem, d.copies.Stream)
	})
}

func (d *Device) download(t *transfer, b *buffer, off int, dst []byte) error {
	return d.pieces(t, b, len(dst), func(s *slot, from, n int) error {
		s.mem, s.dst = s.mem[:n], dst[from:from+n]
		return driver.ToHost(s.mem, b.address()+cu.DevicePtr(off+from), d.copies.Stream)
	})
}

// pieces cuts a copy of n bytes into slots.
func (d *Device) pieces(t *transfer, b *buffer, n int, issue func(s *slot, from, n int) error) error {
	if err := d.alive(); err != nil {
		return err
	}
	if n == 0 {
		close(t.done)
		return nil
	}
	if !d.compute.reached(b.block.used) {
		if err := d.copies.after(d.compute); err != nil {
			return d.failed(err)
		}
	}
	for from := 0; from < n; from += slotBytes {
		s := <-d.slots
		s.mem, s.all = s.mem[:cap(s.mem)], t
		if from+slotBytes >= n {
			s.end = t
		}
		err := issue(s, from, min(slotBytes, n-from))
		if err == nil {
			b.block.copied, err = d.copies.mark(s)
		}
		if err != nil {
			s.dst, s.end, s.all = nil, nil, nil
			d.slots <- s
			return d.failed(err)
		}
	}
	return nil
}
