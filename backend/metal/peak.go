//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// Parameters of the measurements. Metal does not report the number of cores, so there are enough threadgroups for any
// number.
const (
	peakThreads = 256 // of a threadgroup of the kernels of kernels/metal/peak.metal
	peakGroups  = 256
	peakBytes   = 64 << 20 // that no cache holds

	// peakTime is the minimum duration of a measurement: long enough for clocks to drop to a sustainable rate.
	peakTime  = 20 * time.Millisecond
	peakTries = 5
)

// Peak measures the rates that the device reaches: matrix multiplication in its precision, and memory reads. The best
// of several tries counts.
func (d *Device) Peak() (p backend.Peak, err error) {
	err = d.Do(func() (err error) {
		p, err = d.peak()
		return err
	})
	return p, err
}

// peak implements Peak in the device's turn.
func (d *Device) peak() (p backend.Peak, err error) {
	out, err := d.Obtain(4*peakThreads*peakGroups, gpu.UseArena, "the results of a measurement")
	if err != nil {
		return p, err
	}
	defer d.Release(out)
	read, err := d.Obtain(int(min(peakBytes, d.traits.workingSet/16)), gpu.UseArena, "what is read in a measurement")
	if err != nil {
		return p, err
	}
	defer d.Release(read)
	products := peakFMA
	if d.Precision == backend.BF16 {
		products = peakBF16
	}
	if p.FlopsPerSecond, err = d.flops(products, out); err != nil {
		return p, err
	}
	reading, err := d.newPeakLaunch("peak_read", gpu.PointerKind, gpu.PointerKind, gpu.LongKind)
	if err != nil {
		return p, err
	}
	reading[0].Args[0], reading[0].Args[1], reading[0].Args[2] = uint64(out.At), uint64(read.At), uint64(read.Bytes/16)
	took, err := d.timeOf(reading, nil)
	if err != nil {
		return p, err
	}
	p.BytesPerSecond = float64(read.Bytes) / took.Seconds()
	return p, nil
}

// products is a kernel of kernels/metal/peak.metal that measures arithmetic.
type products struct {
	kernel string
	each   int // floating-point operations of a threadgroup in each repetition
}

var (
	peakFMA  = products{"peak_fma_f32", 2 * 16 * peakThreads}
	peakF32  = products{"peak_mma_f32", 262144}
	peakF16  = products{"peak_mma_f16", 262144}
	peakBF16 = products{"peak_mma_bf16", 262144}
)

// flops measures floating-point operations per second. The results are written to out.
func (d *Device) flops(p products, out *gpu.Block) (float64, error) {
	l, err := d.newPeakLaunch(p.kernel, gpu.PointerKind, gpu.IntKind)
	if err != nil {
		return 0, err
	}
	l[0].Args[0], l[0].Args[1] = uint64(out.At), 1
	took, err := d.timeOf(l, func() { l[0].Args[1] *= 2 })
	if err != nil {
		return 0, err
	}
	return float64(l[0].Args[1]) * float64(p.each) * peakGroups / took.Seconds(), nil
}

// newPeakLaunch returns a launch of a kernel of kernels/metal/peak.metal.
func (d *Device) newPeakLaunch(name string, kinds ...gpu.Kind) ([]gpu.Launch, error) {
	l := make([]gpu.Launch, 1)
	l[0].Grid, l[0].Block, l[0].Count = [3]uint32{peakGroups, 1, 1}, [3]uint32{peakThreads, 1, 1}, uint32(len(kinds))
	k, err := d.shaders.kernel(&gpu.Kernel{File: "peak", Name: name, Launch: &l[0]})
	if err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	l[0].Function = k.handle()
	k.learn(kinds)
	return l, nil
}

// timeOf returns the time that launches take on the device, the best of several tries. It calls more, if not nil, to
// double the work until the time is long enough to be measured.
func (d *Device) timeOf(l []gpu.Launch, more func()) (best time.Duration, err error) {
	if best, err = d.timed(l); err != nil {
		return 0, err
	}
	tries := peakTries
	if best >= 10*peakTime {
		tries = 1 // a slow device: the fake
	}
	for best < peakTime && more != nil {
		more()
		if best, err = d.timed(l); err != nil {
			return 0, err
		}
	}
	for range tries - 1 {
		took, err := d.timed(l)
		if err != nil {
			return 0, err
		}
		best = min(best, took)
	}
	return best, nil
}

// timed runs launches in the device's turn, and waits for them.
func (d *Device) timed(l []gpu.Launch) (time.Duration, error) {
	if err := d.Alive(); err != nil {
		return 0, err
	}
	w, _, err := d.system.run(l, nil, nil)
	if err != nil {
		return 0, d.Failed(err)
	}
	took, err := w.wait()
	if err != nil {
		return 0, d.Failed(err)
	}
	return max(took, 1), nil
}

// Read reads the bytes of buffers and does nothing with them: one kernel a buffer, and commands of several buffers. Up
// to 15 bytes at each end of a buffer are left out.
func (d *Device) Read(buffers []backend.Buffer) error {
	list := make([]*gpu.Buffer, len(buffers))
	for i, b := range buffers {
		var err error
		if list[i], err = d.BufferOf(b); err != nil {
			return err
		}
	}
	return d.Do(func() error {
		out, err := d.Obtain(4*peakThreads*peakGroups, gpu.UseArena, "what is read")
		if err != nil {
			return err
		}
		defer d.Release(out)
		one, err := d.newPeakLaunch("peak_read", gpu.PointerKind, gpu.PointerKind, gpu.LongKind)
		if err != nil {
			return err
		}
		all, first, bytes := make([]gpu.Launch, len(list)), 0, 0
		for i, b := range list {
			if bytes += b.Size(); i > first && !d.pace.fits(slowSeconds(0, bytes)) {
				if _, err := d.timed(all[first:i]); err != nil {
					return err
				}
				first, bytes = i, b.Size()
			}
			if err := b.Open(); err != nil {
				return err
			}
			at := b.At(0)
			skip := int(-at % 16)
			words := max(b.Size()-skip, 0) / 16
			all[i] = one[0]
			all[i].Grid[0] = uint32(min(peakGroups, (words+peakThreads-1)/peakThreads))
			all[i].Args[0], all[i].Args[1], all[i].Args[2] = uint64(out.At), uint64(at)+uint64(skip), uint64(words)
		}
		_, err = d.timed(all[first:])
		return err
	})
}
