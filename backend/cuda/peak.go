//go:build cuda && linux

package cuda

import (
	"fmt"
	"time"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// Parameters of the measurements.
const (
	peakThreads = 256 // of a block of the kernels of kernels/cuda/peak.cu
	peakBlocks  = 2   // blocks per multiprocessor, for products
	readBlocks  = 8   // and for reads

	// peakTime is the minimum duration of a try, and peakTries the number of tries. Together they are long enough for
	// clocks to drop to a sustainable rate.
	peakTime  = 60 * time.Millisecond
	peakTries = 6
	// Size of the copies from the host.
	copyBytes = 64 << 20
)

// Peak measures the peak rates of the device: matrix multiplication in its precision (mma.sync on bf16, or float32
// multiply-adds), uncached reads of memory, and copies from pinned host memory. The best of the last tries counts.
func (d *Device) Peak() (p backend.Peak, err error) {
	var out, block *gpu.Block
	var host []byte
	err = d.Do(func() error {
		defer func() {
			d.Release(out)
			d.Release(block)
			_ = driver.HostFree(host)
		}()
		blocks := readBlocks * d.properties.processors
		if out, err = d.Obtain(4*peakThreads*blocks, gpu.UseArena, "the results of a measurement"); err != nil {
			return err
		}
		if p.FlopsPerSecond, err = d.peakFlops(out); err != nil {
			return err
		}
		if block, err = d.Obtain(d.uncached(), gpu.UseBuffer, "what is read in a measurement"); err != nil {
			return err
		}
		if p.BytesPerSecond, err = d.peakRead(out, block); err != nil {
			return err
		}
		if host, err = driver.HostAlloc(min(copyBytes, block.Bytes)); err != nil {
			return fmt.Errorf("cuda: pinned memory for a measurement: %w", err)
		}
		p.CopiedPerSecond, err = d.peakCopy(block, host)
		return err
	})
	return p, err
}

// uncached returns a size that is much larger than any cache of the device but a small part of its memory.
func (d *Device) uncached() int {
	dev := cu.Device(d.properties.index)
	cache, err := dev.Attribute(cu.L2CacheSize)
	if err != nil {
		cache = 64 << 20
	}
	return min(16*max(cache, 1<<20), int(d.properties.memory/16)) &^ 15
}

// peakFlops returns the floating-point operations per second of the multiprocessors.
func (d *Device) peakFlops(out *gpu.Block) (float64, error) {
	name, each := "peak_fma_f32", 2*16*peakThreads
	if d.Precision == backend.BF16 {
		name, each = "peak_mma_bf16", 8*2*16*8*16*peakThreads/32
	}
	l, err := d.peakKernel(name, peakBlocks*d.properties.processors)
	if err != nil {
		return 0, err
	}
	l[0].Args[0], l[0].Count = uint64(out.At), 2
	rounds := 1
	took, err := d.timeOf(func() error {
		l[0].Args[1] = uint64(uint32(rounds))
		return d.issueAll(l)
	}, func() { rounds *= 2 })
	if err != nil {
		return 0, err
	}
	return float64(rounds) * float64(each) * peakBlocks * float64(d.properties.processors) / took.Seconds(), nil
}

// peakRead returns the bytes per second at which a block is read.
func (d *Device) peakRead(out, b *gpu.Block) (float64, error) {
	l, err := d.peakKernel("peak_read", readBlocks*d.properties.processors)
	if err != nil {
		return 0, err
	}
	l[0].Args[0], l[0].Args[1], l[0].Args[2], l[0].Count = uint64(out.At), uint64(b.At), uint64(b.Bytes/16), 3
	times := 1
	took, err := d.timeOf(func() error {
		for range times {
			if err := d.issueAll(l); err != nil {
				return err
			}
		}
		return nil
	}, func() { times *= 2 })
	if err != nil {
		return 0, err
	}
	return float64(times) * float64(b.Bytes) / took.Seconds(), nil
}

// peakCopy returns the bytes per second at which pinned memory is copied.
func (d *Device) peakCopy(b *gpu.Block, host []byte) (float64, error) {
	for i := 0; i < len(host); i += 4096 {
		host[i] = byte(i >> 12) // makes its pages resident
	}
	times := 1
	took, err := d.timeOf(func() error {
		for range times {
			if err := driver.ToDevice(cu.DevicePtr(b.At), host, d.compute.Stream); err != nil {
				return d.Failed(err)
			}
		}
		return nil
	}, func() { times *= 2 })
	if err != nil {
		return 0, err
	}
	return float64(times) * float64(len(host)) / took.Seconds(), nil
}

// peakKernel returns a launch of a kernel of kernels/cuda/peak.cu.
func (d *Device) peakKernel(name string, blocks int) (driver.Launches, error) {
	f, err := d.images.function("peak", name)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	l := make(driver.Launches, 1)
	l[0].Function = driver.Handle(f)
	l[0].Grid, l[0].Block = [3]uint32{uint32(blocks), 1, 1}, [3]uint32{peakThreads, 1, 1}
	return l, nil
}

func (d *Device) issueAll(l driver.Launches) error {
	if _, err := l.Issue(d.compute.Stream); err != nil {
		return d.Failed(err)
	}
	return nil
}

// timeOf returns the time that work takes on the device, the best of the later tries. It calls more to double the work
// until the time is long enough to be measured.
func (d *Device) timeOf(work func() error, more func()) (best time.Duration, err error) {
	if err := d.Alive(); err != nil {
		return 0, err
	}
	c, err := d.newClock()
	if err != nil {
		return 0, err
	}
	defer c.free()
	once := func() (time.Duration, error) {
		took, err := c.time(work)
		return max(took, 1), err
	}
	if best, err = once(); err != nil {
		return 0, err
	}
	tries := peakTries
	if best >= 10*peakTime {
		tries = 1 // a slow device: the simulator
	}
	for best < peakTime {
		more()
		if best, err = once(); err != nil {
			return 0, err
		}
	}
	for i := 1; i < tries; i++ {
		took, err := once()
		if err != nil {
			return 0, err
		}
		if best = min(best, took); i <= tries/2 {
			best = took // the first were at a clock that does not last
		}
	}
	return best, nil
}

// Read reads the bytes of buffers and does nothing with them: one kernel a
// buffer. Up to 15 bytes at the end of a buffer are left out.
func (d *Device) Read(buffers []backend.Buffer) error {
	list := make([]*gpu.Buffer, len(buffers))
	for i, b := range buffers {
		var err error
		if list[i], err = d.BufferOf(b); err != nil {
			return err
		}
	}
	done := newLatch()
	err := d.Do(func() error {
		if err := d.Alive(); err != nil {
			return err
		}
		blocks := readBlocks * d.properties.processors
		out, err := d.Obtain(4*peakThreads*blocks, gpu.UseArena, "what is read")
		if err != nil {
			return err
		}
		defer d.Release(out)
		f, err := d.images.function("peak", "peak_read")
		if err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		if err := d.compute.after(d.copies); err != nil {
			return d.Failed(err)
		}
		l := make(driver.Launches, len(list))
		for i, b := range list {
			if err := b.Open(); err != nil {
				return err
			}
			l[i].Function = driver.Handle(f)
			words := b.Size() / 16
			l[i].Grid, l[i].Block = [3]uint32{uint32(min(blocks, (words+peakThreads-1)/peakThreads)), 1, 1}, [3]uint32{peakThreads, 1, 1}
			l[i].Args[0], l[i].Args[1], l[i].Args[2], l[i].Count = uint64(out.At), uint64(b.At(0)), uint64(words), 3
		}
		if err := d.issueAll(l); err != nil {
			return err
		}
		ticket, err := d.compute.mark(done)
		if err != nil {
			return d.Failed(err)
		}
		out.Used.Store(ticket)
		for _, b := range list {
			b.Block.Used.Store(ticket)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := done.result(); err != nil {
		return d.Failed(err)
	}
	return nil
}
