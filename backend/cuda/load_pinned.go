//go:build cuda && linux

package cuda

import (
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
)

// PinnedCopy copies one slot of pinned memory again and again, as long as the
// bytes last.
func (d *Device) PinnedCopy(bytes int64) (func() error, func(), error) {
	if bytes < 0 {
		return nil, nil, fmt.Errorf("cuda: %d bytes", bytes)
	}
	slot := int(d.ringSlot)
	var mem []byte
	var to *block
	err := d.queue.do(func() (err error) {
		if to, err = d.obtain(slot, useBuffer, "copies that are measured"); err != nil {
			return err
		}
		if mem, err = driver.HostAlloc(slot); err != nil {
			d.release(to)
			return d.failed(fmt.Errorf("%w: pinned memory, %d bytes of it: %w", backend.ErrOutOfMemory, slot, err))
		}
		clear(mem)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	run := func() error {
		end := newLatch()
		err := d.queue.do(func() (err error) {
			if err := d.alive(); err != nil {
				return err
			}
			for left := bytes; left > 0; left -= int64(slot) {
				if err := driver.ToDevice(to.at, mem[:min(left, int64(slot))], d.copies.Stream); err != nil {
					return d.failed(err)
				}
			}
			if to.copied, err = d.copies.mark(end); err != nil {
				return d.failed(err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := end.result(); err != nil {
			return d.lost(err)
		}
		return nil
	}
	release := sync.OnceFunc(func() {
		_ = d.queue.do(func() error {
			_ = d.copies.Synchronize()
			d.release(to)
			return driver.HostFree(mem)
		})
	})
	return run, release, nil
}

var _ interface {
	backend.Loader
	backend.PinnedCopier
} = (*Device)(nil)
