//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// What is measured of a device. It does not say how many cores it has: there are
// threadgroups enough for any.
const (
	peakThreads = 256 // of a threadgroup of the kernels of kernels/metal/peak.metal
	peakGroups  = 256
	peakBytes   = 64 << 20 // that no cache holds

	// peakTime is how long a measurement takes at least: long enough for clocks
	// to come down to what the device can keep up.
	peakTime  = 20 * time.Millisecond
	peakTries = 5
)

// Peak measures what the device reaches: products of the kind that its precision
// computes with, and reading memory. The best of several tries counts.
func (d *Device) Peak() (p backend.Peak, err error) {
	out, err := d.obtain(4*peakThreads*peakGroups, useArena, "the results of a measurement")
	if err != nil {
		return p, err
	}
	defer d.release(out)
	read, err := d.obtain(int(min(peakBytes, d.traits.workingSet/16)), useArena, "what is read in a measurement")
	if err != nil {
		return p, err
	}
	defer d.release(read)
	name, each := "peak_fma_f32", 2*16*peakThreads
	if d.precision == backend.BF16 {
		name, each = "peak_mma_bf16", 262144
	}
	products, err := d.newPeakLaunch(name, gpu.PointerKind, gpu.IntKind)
	if err != nil {
		return p, err
	}
	defer products.free()
	products[0].Args[0], products[0].Args[1] = uint64(out.slot.at(0)), 1
	took, err := d.timeOf(products, func() { products[0].Args[1] *= 2 })
	if err != nil {
		return p, err
	}
	p.FlopsPerSecond = float64(products[0].Args[1]) * float64(each) * peakGroups / took.Seconds()

	reading, err := d.newPeakLaunch("peak_read", gpu.PointerKind, gpu.PointerKind, gpu.LongKind)
	if err != nil {
		return p, err
	}
	defer reading.free()
	reading[0].Args[0], reading[0].Args[1], reading[0].Args[2] = uint64(out.slot.at(0)), uint64(read.slot.at(0)), uint64(read.bytes/16)
	if took, err = d.timeOf(reading, nil); err != nil {
		return p, err
	}
	p.BytesPerSecond = float64(read.bytes) / took.Seconds()
	return p, nil
}

// newPeakLaunch is a launch of a kernel of kernels/metal/peak.metal.
func (d *Device) newPeakLaunch(name string, kinds ...gpu.Kind) (launches, error) {
	l := newLaunches(1)
	l[0].Grid, l[0].Block, l[0].Count = [3]uint32{peakGroups, 1, 1}, [3]uint32{peakThreads, 1, 1}, uint32(len(kinds))
	k, err := d.shaders.kernel(&gpu.Kernel{File: "peak", Name: name, Launch: &l[0]})
	if err != nil {
		l.free()
		return nil, fmt.Errorf("metal: %w", err)
	}
	l[0].Function = k.handle()
	d.order.Lock()
	defer d.order.Unlock()
	if !k.known {
		k.layout(kinds)
		k.known = true
	}
	return l, nil
}

// timeOf is how long launches take the device, the best of several times; more, if any,
// has them do twice as much until that is long enough to be measured.
func (d *Device) timeOf(l launches, more func()) (best time.Duration, err error) {
	if best, err = d.timed(l); err != nil {
		return 0, err
	}
	tries := peakTries
	if best >= 10*peakTime {
		tries = 1 // a device that takes its time: the stand-in
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

// timed runs launches, while nobody else gives any, and waits for them.
func (d *Device) timed(l launches) (time.Duration, error) {
	d.order.Lock()
	defer d.order.Unlock()
	if d.closed {
		return 0, errClosedDevice
	}
	if err := d.alive(); err != nil {
		return 0, err
	}
	w, _, err := d.system.run(l)
	if err != nil {
		return 0, d.failed(err)
	}
	took, err := w.wait()
	if err != nil {
		return 0, d.failed(err)
	}
	return max(took, 1), nil
}

// Read reads the bytes of buffers and does nothing with them: one kernel a buffer. Up
// to 15 bytes at each end of a buffer are left out.
func (d *Device) Read(buffers []backend.Buffer) error {
	list := make([]*buffer, 0, len(buffers))
	defer func() {
		for _, b := range list {
			b.drop()
		}
	}()
	for _, b := range buffers {
		c, err := d.bufferOf(b)
		if err == nil {
			err = c.claim()
		}
		if err != nil {
			return err
		}
		list = append(list, c)
	}
	out, err := d.obtain(4*peakThreads*peakGroups, useArena, "what is read")
	if err != nil {
		return err
	}
	defer d.release(out)
	one, err := d.newPeakLaunch("peak_read", gpu.PointerKind, gpu.PointerKind, gpu.LongKind)
	if err != nil {
		return err
	}
	defer one.free()
	all := newLaunches(len(list))
	defer all.free()
	for i, b := range list {
		at := b.at(0)
		skip := int(-at % 16)
		words := max(b.bytes-skip, 0) / 16
		all[i] = one[0]
		all[i].Grid[0] = uint32(min(peakGroups, (words+peakThreads-1)/peakThreads))
		all[i].Args[0], all[i].Args[1], all[i].Args[2] = uint64(out.slot.at(0)), uint64(at)+uint64(skip), uint64(words)
	}
	_, err = d.timed(all)
	return err
}
