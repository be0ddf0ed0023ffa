package testdevice

import (
	"context"
	"slices"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Lazy is a device that does nothing before it is waited for: copies and runs are
// put into a queue.
type Lazy struct {
	backend.Device
	backend.Memory
	queue []func()
}

// NewLazy opens a lazy device with one thread, until the test ends.
func NewLazy(t testing.TB) *Lazy {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return &Lazy{Device: dev, Memory: dev.(backend.Memory)}
}

// Do performs all queued operations.
func (d *Lazy) Do() {
	for _, do := range d.queue {
		do()
	}
	d.queue = d.queue[:0]
}

// First inserts f at the front of the queue.
func (d *Lazy) First(f func()) { d.queue = slices.Insert(d.queue, 0, f) }

// later queues f.
func (d *Lazy) later(f func() (backend.Fence, error)) backend.Fence {
	r := &reached{dev: d}
	d.queue = append(d.queue, func() {
		fence, err := f()
		if err == nil {
			err = fence.Wait(context.Background())
		}
		r.err = err
	})
	return r
}

// reached is a fence for the operations queued so far.
type reached struct {
	dev *Lazy
	err error
}

// Wait implements backend.Fence.
func (r *reached) Wait(context.Context) error {
	r.dev.Do()
	return r.err
}

// Upload implements backend.Device.
func (d *Lazy) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	src = slices.Clone(src)
	return d.later(func() (backend.Fence, error) { return d.Device.Upload(dst, off, src) }), nil
}

// Download implements backend.Device.
func (d *Lazy) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	return d.later(func() (backend.Fence, error) { return d.Device.Download(dst, src, off) }), nil
}

// Compile implements backend.Device.
func (d *Lazy) Compile(p *ir.Program) (backend.Executable, error) {
	e, err := d.Device.Compile(p)
	return lazyExecutable{e, d}, err
}

// CompileIn implements backend.Memory.
func (d *Lazy) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	e, err := d.Memory.CompileIn(p, arena)
	return lazyExecutable{e, d}, err
}

type lazyExecutable struct {
	backend.Executable
	dev *Lazy
}

// Run implements backend.Executable.
func (e lazyExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	args.Buffers, args.Dims = slices.Clone(args.Buffers), slices.Clone(args.Dims)
	return e.dev.later(func() (backend.Fence, error) { return e.Executable.Run(ctx, args) }), nil
}
