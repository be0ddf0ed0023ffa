//go:build cuda && linux

package cuda

import (
	"context"
	"os"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/safetensors"
)

// plainBytes is the number of bytes per driver copy. Other work of the device runs between two copies.
const plainBytes = 16 << 20

// plain copies from the mapping through the driver. The driver uses its own pinned buffers, or reads the pages
// directly if the device can access them.
func (s *shipment) plain(ctx context.Context) error {
	for i, c := range s.cargo {
		err := c.view.WithBytes(func(data []byte) error {
			for from := 0; from < len(data); from += plainBytes {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				piece := data[from:min(from+plainBytes, len(data))]
				touch(piece)
				if err := s.copyPlain(c.off+from, piece); err != nil {
					return err
				}
				s.given[i] += int64(len(piece))
			}
			return nil
		})
		if err != nil {
			return err
		}
		// The pages were needed once.
		_ = safetensors.Advise([]*safetensors.View{c.view}, safetensors.AdviseDontNeed)
	}
	s.stats.Read = "mmap, 1 thread"
	// The last bytes may still be in transit from the driver's buffers, in a stream that our streams do not wait for.
	return s.dev.Do(func() error {
		if err := driver.WaitDefault(); err != nil {
			return s.dev.Failed(err)
		}
		return nil
	})
}

func (s *shipment) copyPlain(off int, piece []byte) error {
	return s.dev.Do(func() error {
		if err := s.dev.Alive(); err != nil {
			return err
		}
		to := cu.DevicePtr(s.block.At) + cu.DevicePtr(off)
		if err := driver.Of(cu.MemcpyHtoD(to, unsafe.Pointer(unsafe.SliceData(piece)), int64(len(piece)))); err != nil {
			return s.dev.Failed(err)
		}
		s.count([]stretch{{n: int64(len(piece)), to: to}})
		return nil
	})
}

// touch reads a byte of every page, so that an unreadable page gives an error in View.WithBytes instead of a crash in the
// driver.
func touch(data []byte) {
	var sum byte
	for i := 0; i < len(data); i += os.Getpagesize() {
		sum += data[i]
	}
	touched.Store(uint32(sum))
}

// touched keeps the compiler from leaving reads out.
var touched atomic.Uint32
