//go:build cuda && linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// weightAlign is the alignment of weights on the device. It suits vector loads and asynchronous copies of
// kernels and is independent of the alignment in the file.
const weightAlign = 256

// loading is one call of Load.
type loading struct {
	dev     *Device
	weights []backend.Weight
	block   *gpu.Block // of all weights
	sizes   []int      // of each, on the device
	*backend.BlockLayout
	total int64 // bytes to be uploaded
	ring  *ring // once one is needed
	stats backend.LoadStats
}

// Load uploads tensors in the device's load mode. They share one allocation, in their order: tensors that are adjacent
// in a file stay adjacent if their sizes are multiples of weightAlign, and are copied together.
func (d *Device) Load(ctx context.Context, weights []backend.Weight) ([]backend.Buffer, error) {
	l := &loading{dev: d, weights: weights}
	ctx, err := d.loads.enter(ctx, l)
	if err != nil {
		return nil, err
	}
	defer d.loads.leave(l)
	if err := l.layOut(); err != nil {
		return nil, err
	}
	if l.block, err = d.Request(l.Bytes, gpu.UseWeight, fmt.Sprintf("%d imported weights", len(weights))); err != nil {
		return nil, err
	}
	began := time.Now()
	err = l.run(ctx)
	l.ring.close()
	if err != nil {
		// A device that is closed has taken its memory back.
		_ = d.Do(func() error { d.Release(l.block); return nil })
		return nil, err
	}
	l.stats.Seconds = time.Since(began).Seconds()
	d.loads.note(l.stats)
	return l.buffers(), nil
}

// layOut assigns an offset to each weight and validates the request.
func (l *loading) layOut() (err error) {
	l.sizes = make([]int, len(l.weights))
	for i, w := range l.weights {
		if l.sizes[i], err = l.dev.sizeOf(w); err != nil {
			return fmt.Errorf("cuda: tensor %q: %w", w.View.Name, err)
		}
		l.total += int64(w.View.Len())
	}
	if l.BlockLayout, err = backend.LayoutBlock(l.sizes, weightAlign); err != nil {
		return fmt.Errorf("cuda: %w: %w", backend.ErrOutOfMemory, err)
	}
	return nil
}

// sizeOf returns the size of a weight on the device.
func (d *Device) sizeOf(w backend.Weight) (int, error) {
	from, err := tensor.ParseDType(w.View.DType.String())
	if err != nil {
		return 0, err
	}
	switch n, err := tensor.NumElements(w.View.Shape); {
	case err != nil:
		return 0, err
	case from == w.DType:
		return w.View.Len(), nil
	case gpu.NewQuantizer(from, w.DType) != nil:
		return w.DType.Bytes(n), nil
	}
	return 0, fmt.Errorf("%w: %v from %v", backend.ErrUnsupported, w.DType, from)
}

// run uploads the unconverted weights, then the converted ones.
func (l *loading) run(ctx context.Context) error {
	var whole []cargo
	var converted []int
	for i, w := range l.weights {
		if w.DType.String() != w.View.DType.String() {
			converted = append(converted, i)
			continue
		}
		whole = append(whole, cargo{w.View, l.Offsets[i]})
	}
	mode := l.dev.load
	if mode == backend.LoadAuto {
		var err error
		if mode, whole, err = l.choose(ctx, whole); err != nil {
			return err
		}
	} else {
		l.stats.Mode, l.stats.Why = mode, "as asked"
	}
	if err := l.ship(ctx, mode, l.block, whole); err != nil {
		return err
	}
	return l.convert(ctx, mode, converted)
}

// buffers returns the buffers of the weights.
func (l *loading) buffers() []backend.Buffer {
	buffers := make([]backend.Buffer, len(l.weights))
	for i, n := range l.sizes {
		buffers[i] = l.dev.Weight(l.block, l.Offsets[i], n, l.BlockLayout)
	}
	return buffers
}

// cargo is a view to be copied to byte off of a block.
type cargo struct {
	view *safetensors.View
	off  int
}

// shipment is cargo on its way to one block.
type shipment struct {
	*loading
	block *gpu.Block
	cargo []cargo
	given []int64 // bytes of each that the device was given to copy
}

// ship uploads the cargo. If auto chose to register pages and that fails midway, the ring uploads the rest.
func (l *loading) ship(ctx context.Context, mode backend.LoadMode, to *gpu.Block, all []cargo) error {
	if len(all) == 0 {
		return nil
	}
	s := &shipment{loading: l, block: to, cargo: all, given: make([]int64, len(all))}
	switch mode {
	case backend.LoadPlain:
		return s.plain(ctx)
	case backend.LoadRegister:
		err := s.register(ctx)
		if l.dev.load == backend.LoadAuto && errors.Is(err, errRegister) {
			l.stats.Mode, l.stats.Why = backend.LoadRing, err.Error()
			return l.ship(ctx, backend.LoadRing, to, s.left())
		}
		if errors.Is(err, errRegister) {
			err = fmt.Errorf("cuda: %w register: %w", backend.ErrLoad, err)
		}
		return err
	}
	return s.byRing(ctx)
}

// left returns the cargo that is not yet completely uploaded.
func (s *shipment) left() (rest []cargo) {
	for i, c := range s.cargo {
		if s.given[i] < int64(c.view.Len()) {
			rest = append(rest, c)
		}
	}
	return rest
}

func (s *shipment) views() []*safetensors.View {
	views := make([]*safetensors.View, len(s.cargo))
	for i, c := range s.cargo {
		views[i] = c.view
	}
	return views
}

// stretch is one copy of n bytes from host memory to the device.
type stretch struct {
	from, n int64
	to      cu.DevicePtr
}

// stretches returns the copies for the given parts; adjacent copies are merged.
func (s *shipment) stretches(parts []safetensors.Part) (all []stretch) {
	for _, p := range parts {
		to := cu.DevicePtr(int64(s.block.At) + int64(s.cargo[p.View].off) + p.From)
		if n := len(all); n > 0 {
			if last := &all[n-1]; last.from+last.n == p.At && last.to+cu.DevicePtr(last.n) == to {
				last.n += p.Length
				continue
			}
		}
		all = append(all, stretch{p.At, p.Length, to})
	}
	return all
}

// within clips copies to the range [from, to).
func within(all []stretch, from, to int64) (some []stretch) {
	for _, x := range all {
		begin, end := max(x.from, from), min(x.from+x.n, to)
		if begin < end {
			some = append(some, stretch{begin - from, end - begin, x.to + cu.DevicePtr(begin-x.from)})
		}
	}
	return some
}

// count records copies. It runs in the device's goroutine.
func (l *loading) count(copies []stretch) {
	l.stats.Copies += len(copies)
	for _, c := range copies {
		l.stats.Bytes += c.n
	}
}

// Sizes of a device's loads, all multiples of a page.
const (
	ringSlotBytes = 4 << 20  // per slot; larger slots do not speed up copies, and pinning them takes longer
	windowBytes   = 64 << 20 // registered at a time
	trialBytes    = 64 << 20 // that each way has to show itself
)

const (
	leastReaders, mostReaders = 4, 8
	leastSlot                 = 256 << 10
	beyondReaders             = 2 // slots that are copied from while every reader fills one
)

// readers returns the number of goroutines that fill slots: enough to keep a disk busy, but no more than the widest
// PCIe link can drain.
func readers() int { return min(max(runtime.GOMAXPROCS(0), leastReaders), mostReaders) }

// slotBytes returns the slot size of the ring: the device's slot size, or less if some readers would otherwise be
// idle.
func (l *loading) slotBytes() int64 {
	const each = 4 // slots for each reader
	want := (l.total/int64(each*readers()) + leastSlot) / leastSlot * leastSlot
	return min(want, l.dev.ringSlot)
}

var (
	_ backend.Memory = (*Device)(nil)
	_ backend.Loader = (*Device)(nil)
	_ backend.Meter  = (*Device)(nil)
)
