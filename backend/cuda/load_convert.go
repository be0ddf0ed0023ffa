//go:build cuda && linux

package cuda

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// piece is a part of a weight that the device converts, on its way.
type piece struct {
	gpu.Piece
	staged int // offset of its bytes before conversion
	at     int // offset of its blocks in the allocation of all weights
}

// convert uploads weights in their file format in batches and runs kernels that quantize them.
func (l *loading) convert(ctx context.Context, mode backend.LoadMode, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	batches, size, err := l.batches(numbers)
	if err != nil {
		return err
	}
	var c *conversion
	err = l.dev.Do(func() (err error) {
		c, err = l.dev.newConversion(size)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = l.dev.Do(func() error { c.free(); return nil }) }()
	for _, batch := range batches {
		all := make([]cargo, len(batch))
		for i, p := range batch {
			all[i] = cargo{p.View, p.staged}
		}
		if err := l.ship(ctx, mode, c.staging, all); err != nil {
			return err
		}
		if err := c.run(l, batch); err != nil {
			return err
		}
		l.stats.Converted += bytesOf(all)
	}
	return nil
}

// batches cuts weights into pieces and returns the memory that the largest batch needs.
func (l *loading) batches(numbers []int) (all [][]piece, size int, err error) {
	var batch []piece
	used := 0
	for _, i := range numbers {
		pieces, err := gpu.Pieces(i, l.weights[i], l.dev.staging)
		if err != nil {
			return nil, 0, err
		}
		for _, whole := range pieces {
			p := piece{Piece: whole, at: l.Offsets[i] + whole.Offset()}
			n := (p.View.Len() + weightAlign - 1) / weightAlign * weightAlign
			if len(batch) > 0 && used+n > l.dev.staging {
				all, batch, used = append(all, batch), nil, 0
			}
			p.staged = used
			used += n
			size = max(size, used)
			batch = append(batch, p)
		}
	}
	return append(all, batch), size, nil
}

// conversion holds the state of converting weights. It is used in the device's goroutine.
type conversion struct {
	dev     *Device
	staging *gpu.Block
	trap    *gpu.Block
}

func (d *Device) newConversion(bytes int) (*conversion, error) {
	c := &conversion{dev: d}
	var err error
	if c.staging, err = d.Obtain(bytes, gpu.UseArena, "weights before they are converted"); err != nil {
		return nil, err
	}
	if c.trap, err = d.Obtain(gpu.TrapBytes, gpu.UseReport, "what conversions report in"); err != nil {
		d.Release(c.staging)
		return nil, err
	}
	return c, nil
}

func (c *conversion) free() {
	_ = c.dev.copies.Synchronize()
	c.dev.Release(c.staging)
	c.dev.Release(c.trap)
}

// run converts a batch after the copies that upload it and waits for the result, since the next batch reuses the
// staging memory.
func (c *conversion) run(l *loading, batch []piece) error {
	end := newLatch()
	if err := c.dev.Do(func() error { return c.enqueue(l, batch, end) }); err != nil {
		return err
	}
	if err := end.result(); err != nil {
		return c.dev.Failed(err)
	}
	if i, _, _, ok := gpu.ReadTrap(c.trap.Host); ok {
		return batch[i].Refused()
	}
	return nil
}

func (c *conversion) enqueue(l *loading, batch []piece, end *latch) error {
	d := c.dev
	if err := d.Alive(); err != nil {
		return err
	}
	launches := make(driver.Launches, len(batch))
	for i, p := range batch {
		k := gpu.NewQuantizer(p.From, p.To)
		f, err := d.kernel(k)
		if err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		launches[i].Function = f
		k.Quantize(&launches[i], l.block.At+gpu.Pointer(p.at), c.staging.At+gpu.Pointer(p.staged), p.Elements, c.trap.At, i)
	}
	_, err := launches.Issue(d.copies.Stream)
	ticket := d.copies.issued
	if err == nil {
		ticket, err = d.copies.mark(end)
	}
	if err != nil {
		_ = d.copies.Synchronize()
		return d.Failed(err)
	}
	for _, b := range []*gpu.Block{l.block, c.staging} {
		b.Copied.Store(ticket)
	}
	return nil
}
