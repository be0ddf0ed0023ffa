//go:build cuda && linux

package cuda

import (
	"time"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// program is a compiled program: its runs on the device's stream, or as graphs.
type program struct {
	*gpu.Executable
	dev    *Device
	graphs graphs
}

// Load finds the kernels of a program.
func (r runner) Load(e *gpu.Executable) (gpu.Program, error) {
	if err := r.Do(func() error { return e.Find(r.kernel) }); err != nil {
		return nil, err
	}
	return &program{Executable: e, dev: r.Device}, nil
}

// Close destroys the graphs.
func (p *program) Close() { p.graphs.clear() }

// Launch enqueues a run after the copies of its inputs.
func (p *program) Launch(f *gpu.Flight) error {
	d := p.dev
	copying := !d.copies.reached(p.Arena.Copied.Load())
	for _, b := range f.Buffers {
		copying = copying || !d.copies.reached(b.Block.Copied.Load())
	}
	if copying {
		if err := d.compute.after(d.copies); err != nil {
			return d.Failed(err)
		}
	}
	switch {
	case d.Profile != nil:
		return p.measured(f)
	case d.graphs:
		return p.graphed(f)
	}
	return f.Batches(p.issue)
}

// Mark ends the work of a run.
func (p *program) Mark(f *gpu.Flight) error {
	f.Use(p.dev.compute.issued + 1)
	_, err := p.dev.compute.mark(f)
	return err
}

// issue enqueues kernels that are filled in.
func (p *program) issue(from, to int) error {
	done, err := driver.Launches(p.Launches[from:to]).Issue(p.dev.compute.Stream)
	if err != nil {
		return p.Blame(from+done, err)
	}
	return nil
}

// measured runs launch by launch and measures each.
func (p *program) measured(f *gpu.Flight) error {
	c, err := p.dev.newClock()
	if err != nil {
		return err
	}
	defer c.free()
	return f.Measure(func(from, to int) (time.Duration, error) {
		return c.time(func() error { return p.issue(from, to) })
	})
}
