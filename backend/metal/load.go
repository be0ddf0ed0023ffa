//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// loads has the totals of all Load calls.
type loads struct {
	mu    sync.Mutex
	stats backend.LoadStats
}

// Load returns buffers of weights. It uses the pages of mapped files in place, as Import does, and has the device
// quantize weights of another type. These are copied in parts into memory that the device reads, since it would hold
// all pages of a file that it reads in place.
func (d *Device) Load(ctx context.Context, list []backend.Weight) (buffers []backend.Buffer, err error) {
	began, stats := time.Now(), backend.LoadStats{Mode: backend.LoadPlain, Why: "quantized on the device; others are used in place"}
	var c *conversion
	defer func() {
		c.free()
		if err != nil {
			for _, b := range buffers {
				b.Free()
			}
			buffers = nil
		}
	}()
	for i, w := range list {
		if err := ctx.Err(); err != nil {
			return buffers, err
		}
		from, err := tensor.ParseDType(w.View.DType.String())
		if err != nil {
			return buffers, fmt.Errorf("metal: tensor %q: %w", w.View.Name, err)
		}
		if from == w.DType {
			var b backend.Buffer
			err := w.View.WithBytes(func(data []byte) (err error) {
				b, err = d.Import(weights.Data{Bytes: data, Keep: w.View})
				return err
			})
			if err != nil {
				return buffers, fmt.Errorf("metal: tensor %q: %w", w.View.Name, err)
			}
			buffers = append(buffers, b)
			continue
		}
		if gpu.NewQuantizer(from, w.DType) == nil {
			return buffers, fmt.Errorf("metal: tensor %q: %w: %v from %v", w.View.Name, backend.ErrUnsupported, w.DType, from)
		}
		pieces, err := gpu.Pieces(i, w, convertBytes)
		if err != nil {
			return buffers, fmt.Errorf("metal: tensor %q: %w", w.View.Name, err)
		}
		elements := 0
		for _, p := range pieces {
			elements += p.Elements
		}
		block, err := d.Request(w.DType.Bytes(elements), gpu.UseWeight, "quantized weights")
		if err != nil {
			return buffers, err
		}
		buffers = append(buffers, d.Weight(block, 0, block.Bytes, nil))
		for _, p := range pieces {
			if c, err = c.of(d, p.View.Len()); err != nil {
				return buffers, err
			}
			if err := c.run(ctx, p, block); err != nil {
				return buffers, err
			}
		}
		stats.Bytes += int64(w.View.Len())
		stats.Copies += len(pieces)
	}
	if stats.Bytes > 0 {
		stats.Converted, stats.Seconds = stats.Bytes, time.Since(began).Seconds()
		d.loads.mu.Lock()
		d.loads.stats.Add(stats)
		d.loads.mu.Unlock()
	}
	return buffers, nil
}

// Loaded returns totals of the weights that were quantized.
func (d *Device) Loaded() backend.LoadStats {
	d.loads.mu.Lock()
	defer d.loads.mu.Unlock()
	return d.loads.stats
}

// convertBytes is gpu.ConvertBytes, a variable for tests.
var convertBytes = gpu.ConvertBytes

// conversion holds the memory for converting pieces of weights.
type conversion struct {
	dev           *Device
	staging, trap *gpu.Block
}

// of returns a conversion with memory for a piece of the given size: c, if it is large enough.
func (c *conversion) of(d *Device, bytes int) (*conversion, error) {
	if c != nil && c.staging.Bytes >= bytes {
		return c, nil
	}
	c.free()
	c = &conversion{dev: d}
	err := d.Do(func() (err error) {
		if c.staging, err = d.Obtain(bytes, gpu.UseArena, "weights before they are converted"); err == nil {
			c.trap, err = d.Obtain(gpu.TrapBytes, gpu.UseReport, "what conversions report in")
		}
		return err
	})
	if err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// free releases the memory. A closed device has taken it back.
func (c *conversion) free() {
	if c == nil {
		return
	}
	_ = c.dev.Do(func() error {
		for _, b := range []*gpu.Block{c.staging, c.trap} {
			if b != nil {
				c.dev.Release(b)
			}
		}
		return nil
	})
}

// run converts a piece of a weight into the blocks in to, and waits for it.
func (c *conversion) run(ctx context.Context, p gpu.Piece, to *gpu.Block) error {
	if p.Elements == 0 {
		return nil
	}
	if err := p.View.WithBytes(func(data []byte) error { copy(c.staging.Host, data); return nil }); err != nil {
		return err
	}
	d, l, end := c.dev, make([]gpu.Launch, 1), make(ended, 1)
	k := gpu.NewQuantizer(p.From, p.To)
	k.Quantize(&l[0], to.At+gpu.Pointer(p.Offset()), c.staging.At, p.Elements, c.trap.At, 0)
	found, err := d.shaders.kernel(k)
	if err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	l[0].Function = found.handle()
	if err := d.queue.enter(ctx); err != nil {
		return err
	}
	err = d.Do(func() error {
		if err := d.Alive(); err != nil {
			return err
		}
		found.learn(k.Kinds())
		w, _, err := d.system.run(l, nil, nil)
		if err != nil {
			return d.Failed(err)
		}
		for _, b := range []*gpu.Block{to, c.staging, c.trap} {
			b.Used.Store(d.queue.next())
		}
		d.queue.add(w, end)
		return nil
	})
	if err != nil {
		d.queue.leave()
		return err
	}
	if err := <-end; err != nil {
		return d.Failed(err)
	}
	if _, _, _, ok := gpu.ReadTrap(c.trap.Host); ok {
		return p.Refused()
	}
	return nil
}

// ended receives the error of a command.
type ended chan error

// Finish ends the command.
func (e ended) Finish(err error) { e <- err }

var _ backend.Loader = (*Device)(nil)
