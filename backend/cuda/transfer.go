//go:build cuda && linux

package cuda

import (
	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
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
	dst []byte    // host destination of data from the device
	end *transfer // if this is the last piece
	all *transfer
	dev *Device
}

// Finish empties the slot.
func (s *slot) Finish(err error) {
	if err != nil && s.all.failed == nil {
		s.all.failed = s.dev.Failed(err)
	}
	if err == nil {
		copy(s.dst, s.mem)
	}
	end := s.end
	s.dst, s.end, s.all = nil, nil, nil
	s.dev.slots <- s
	if end != nil {
		end.End(end.failed)
	}
}

// transfer is the fence of a pending copy.
type transfer struct {
	gpu.Transfer
	failed error // of a piece
}

// Upload copies src to the device. It is in pinned memory when Upload returns.
func (r runner) Upload(b *gpu.Buffer, off int, src []byte) (backend.Fence, error) {
	return r.transfer(b, func(t *transfer) error { return r.upload(t, b, off, src) })
}

// Download copies from the device.
func (r runner) Download(dst []byte, b *gpu.Buffer, off int) (backend.Fence, error) {
	return r.transfer(b, func(t *transfer) error { return r.download(t, b, off, dst) })
}

// transfer starts a copy of b.
func (d *Device) transfer(b *gpu.Buffer, start func(*transfer) error) (backend.Fence, error) {
	t := &transfer{Transfer: gpu.NewTransfer()}
	err := d.Do(func() error {
		if err := b.Open(); err != nil {
			return err
		}
		return start(t)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// upload enqueues the pieces of src. Each is in pinned memory when it returns.
func (d *Device) upload(t *transfer, b *gpu.Buffer, off int, src []byte) error {
	return d.pieces(t, b, len(src), func(s *slot, from, n int) error {
		s.mem = s.mem[:n]
		copy(s.mem, src[from:])
		return driver.ToDevice(cu.DevicePtr(b.At(off+from)), s.mem, d.copies.Stream)
	})
}

func (d *Device) download(t *transfer, b *gpu.Buffer, off int, dst []byte) error {
	return d.pieces(t, b, len(dst), func(s *slot, from, n int) error {
		s.mem, s.dst = s.mem[:n], dst[from:from+n]
		return driver.ToHost(s.mem, cu.DevicePtr(b.At(off+from)), d.copies.Stream)
	})
}

// pieces cuts a copy of n bytes into slots.
func (d *Device) pieces(t *transfer, b *gpu.Buffer, n int, issue func(s *slot, from, n int) error) error {
	if err := d.Alive(); err != nil {
		return err
	}
	if n == 0 {
		t.End(nil)
		return nil
	}
	if !d.compute.reached(b.Block.Used.Load()) {
		if err := d.copies.after(d.compute); err != nil {
			return d.Failed(err)
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
			var ticket uint64
			ticket, err = d.copies.mark(s)
			b.Block.Copied.Store(ticket)
		}
		if err != nil {
			s.dst, s.end, s.all = nil, nil, nil
			d.slots <- s
			return d.Failed(err)
		}
	}
	return nil
}
