package testdevice

import (
	"context"
	"slices"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
)

// Lazy is a device that does nothing before it is waited for: copies and runs are
// put into a queue. It counts what a host does to a device that is far away.
type Lazy struct {
	backend.Device
	memory backend.Memory
	queue  []func()

	Waits, Uploads, Runs int // waits that found something to wait for
	Arena                int // bytes of the largest that programs share
}

// NewLazy opens a lazy device with one thread, until the test ends.
func NewLazy(t testing.TB) *Lazy {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return &Lazy{Device: dev, memory: dev.(backend.Memory)}
}

// Do does all that is queued.
func (d *Lazy) Do() {
	for _, do := range d.queue {
		do()
	}
	d.queue = d.queue[:0]
}

// First puts f before all that is queued.
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

// reached is a fence of what is in the queue so far.
type reached struct {
	dev *Lazy
	err error
}

// Wait implements backend.Fence.
func (r *reached) Wait(context.Context) error {
	if len(r.dev.queue) > 0 {
		r.dev.Waits++
		r.dev.Do()
	}
	return r.err
}

// Upload implements backend.Device.
func (d *Lazy) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	d.Uploads++
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

// AllocAll implements backend.Memory.
func (d *Lazy) AllocAll(sizes []int) ([]backend.Buffer, error) { return d.memory.AllocAll(sizes) }

// Part implements backend.Memory.
func (d *Lazy) Part(b backend.Buffer, off, n int) (backend.Buffer, error) {
	return d.memory.Part(b, off, n)
}

// CompileIn implements backend.Memory.
func (d *Lazy) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	d.Arena = max(d.Arena, arena.Size())
	e, err := d.memory.CompileIn(p, arena)
	return lazyExecutable{e, d}, err
}

// Scratch implements backend.Memory.
func (d *Lazy) Scratch(p ...*ir.Program) (int64, error) { return d.memory.Scratch(p...) }

// SetPack implements backend.Memory.
func (d *Lazy) SetPack(p backend.Pack, limit int64) int64 { return d.memory.SetPack(p, limit) }

// PackedBytes implements backend.Memory.
func (d *Lazy) PackedBytes(p backend.Pack, programs ...*ir.Program) (int64, error) {
	return d.memory.PackedBytes(p, programs...)
}

type lazyExecutable struct {
	backend.Executable
	dev *Lazy
}

// Run implements backend.Executable.
func (e lazyExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	e.dev.Runs++
	args.Buffers, args.Dims = slices.Clone(args.Buffers), slices.Clone(args.Dims)
	return e.dev.later(func() (backend.Fence, error) { return e.Executable.Run(ctx, args) }), nil
}
