//go:build cuda && linux

package cuda

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// piece is whole rows, and whole blocks, of a weight that the device converts.
type piece struct {
	weight   int // number of the weight
	view     *safetensors.View
	from, to tensor.DType
	first    int // element of the weight
	elements int
	staged   int // offset of its bytes before conversion
	at       int // offset of its blocks in the allocation of all weights
}

// stagingBytes is the size of the device memory that holds weights before conversion. It grows if a row is longer.
const stagingBytes = 64 << 20

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
			all[i] = cargo{p.view, p.staged}
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
		pieces, err := l.pieces(i)
		if err != nil {
			return nil, 0, err
		}
		for _, p := range pieces {
			n := (p.view.Len() + weightAlign - 1) / weightAlign * weightAlign
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

// pieces cuts a weight into rows that fit a quarter of the staging memory and end
// with a block.
func (l *loading) pieces(number int) (pieces []piece, err error) {
	v := l.weights[number].View
	from, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return nil, err
	}
	whole := piece{weight: number, view: v, from: from, to: l.weights[number].DType, at: l.Offsets[number]}
	whole.elements = v.Len() / from.Size()
	if len(v.Shape) == 0 || whole.elements == 0 {
		return []piece{whole}, nil
	}
	rows, cols := v.Shape[0], whole.elements/v.Shape[0]
	together := tensor.QuantBlock / gcd(cols, tensor.QuantBlock) // rows that end with a block
	step := max(1, l.dev.staging/4/(together*cols*from.Size())) * together
	for r := 0; r < rows; r += step {
		p := whole
		if p.view, err = v.Rows(r, min(r+step, rows)); err != nil {
			return nil, err
		}
		p.first, p.elements = r*cols, p.view.Len()/from.Size()
		p.at += p.to.Bytes(p.first)
		pieces = append(pieces, p)
	}
	return pieces, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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
		return c.refused(l.weights, batch[i])
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
		k := gpu.NewQuantizer(p.from, p.to)
		f, err := d.kernel(k)
		if err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		launches[i].Function = f
		k.Quantize(&launches[i], l.block.At+gpu.Pointer(p.at), c.staging.At+gpu.Pointer(p.staged), p.elements, c.trap.At, i)
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

// refused finds the element that no block can hold, with the words of package
// quant.
func (c *conversion) refused(weights []backend.Weight, p piece) error {
	err := p.view.WithBytes(func(data []byte) error {
		values := make([]float32, 1<<14)
		blocks := make([]byte, p.to.Bytes(len(values)))
		for rest, first := data, p.first; len(rest) > 0; first += len(values) {
			n := min(len(values), len(rest)/p.from.Size())
			if err := tensor.ToFloat32(values[:n], rest[:n*p.from.Size()], p.from); err != nil {
				return err
			}
			if err := quant.Quantize(blocks[:p.to.Bytes(n)], values[:n], p.to); err != nil {
				return fmt.Errorf("from element %d on: %w", first, err)
			}
			rest = rest[n*p.from.Size():]
		}
		return quant.ErrNotFinite // it was so on the device
	})
	return fmt.Errorf("tensor %q: %w", weights[p.weight].View.Name, err)
}
