//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"time"

	"github.com/lorafuse/lorafuse/backend/gpu"
)

// program is a compiled program: each of its runs is one command.
type program struct {
	*gpu.Executable
	dev     *Device
	kernels []*kernel
}

// Load finds the kernels of a program, and compiles their files.
func (r runner) Load(e *gpu.Executable) (gpu.Program, error) {
	p := &program{Executable: e, dev: r.Device}
	err := e.Find(func(k *gpu.Kernel) (uintptr, error) {
		found, err := r.shaders.kernel(k)
		if err != nil {
			return 0, err
		}
		p.kernels = append(p.kernels, found)
		return found.handle(), nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Close does nothing: the device owns the kernels.
func (p *program) Close() {}

// Launch submits a run as one command. If launches are being measured, earlier commands may be pending; the device
// completes them first.
func (p *program) Launch(f *gpu.Flight) (err error) {
	if p.dev.Profile != nil {
		return f.Measure(p.timed)
	}
	if err := f.Batches(p.learn); err != nil {
		return err
	}
	p.dev.given, err = p.issue(0, len(p.Launches))
	return err
}

// Mark adds the run's command to the queue, or its turn if there is none.
func (p *program) Mark(f *gpu.Flight) error {
	d := p.dev
	f.Use(d.queue.next())
	w := d.given
	d.given = work{}
	d.queue.add(w, f)
	return nil
}

// learn sets the argument kinds of the kernels from filled launches.
func (p *program) learn(from, to int) error {
	for k := from; k < to; k++ {
		if p.Launches[k].Grid[0] > 0 {
			p.kernels[k].learn(p.Plan.Kernels[k].Kinds())
		}
	}
	return nil
}

// issue submits filled launches as a command.
func (p *program) issue(from, to int) (work, error) {
	if from == to {
		return work{}, nil
	}
	w, wrong, err := p.dev.system.run(p.Launches[from:to])
	if err != nil {
		return work{}, p.Blame(from+wrong, err)
	}
	return w, nil
}

// timed runs launches that are filled in, and waits for them.
func (p *program) timed(from, to int) (time.Duration, error) {
	_ = p.learn(from, to)
	w, err := p.issue(from, to)
	if err != nil {
		return 0, err
	}
	took, err := w.wait()
	if err != nil {
		return 0, p.dev.Failed(err)
	}
	return took, nil
}
