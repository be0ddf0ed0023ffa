package testdevice

import (
	"context"
	"slices"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Remote is the CPU in the role of a GPU that replays runs. A goroutine of the device performs copies and runs in order,
// and the caller does not wait for it.
type Remote struct {
	backend.Device
	backend.Memory
	jobs chan func()
}

// NewRemote opens a remote device until the test ends.
func NewRemote(t testing.TB, o backend.Options) *Remote {
	dev, err := backend.Open(backend.CPU, o)
	if err != nil {
		t.Fatal(err)
	}
	d := &Remote{dev, dev.(backend.Memory), make(chan func(), 64)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for do := range d.jobs {
			do()
		}
	}()
	t.Cleanup(func() {
		close(d.jobs)
		<-done
		dev.Close()
	})
	return d
}

// Info implements backend.Device.
func (d *Remote) Info() backend.Info {
	i := d.Device.Info()
	i.GPU, i.Replays = true, true
	return i
}

// submit enqueues f.
func (d *Remote) submit(f func() (backend.Fence, error)) backend.Fence {
	j := &job{ended: make(chan struct{})}
	d.jobs <- func() {
		fence, err := f()
		if err == nil {
			err = fence.Wait(context.Background())
		}
		j.err = err
		close(j.ended)
	}
	return j
}

// job is the fence of a copy or a run.
type job struct {
	ended chan struct{}
	err   error
}

// Wait implements backend.Fence. It waits for the end even if ctx is done, so that memory is not freed before.
func (j *job) Wait(context.Context) error {
	<-j.ended
	return j.err
}

// Upload implements backend.Device.
func (d *Remote) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	src = slices.Clone(src)
	return d.submit(func() (backend.Fence, error) { return d.Device.Upload(dst, off, src) }), nil
}

// Download implements backend.Device.
func (d *Remote) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	return d.submit(func() (backend.Fence, error) { return d.Device.Download(dst, src, off) }), nil
}

// Compile implements backend.Device.
func (d *Remote) Compile(p *ir.Program) (backend.Executable, error) {
	e, err := d.Device.Compile(p)
	return remoteExecutable{e, d}, err
}

// CompileIn implements backend.Memory.
func (d *Remote) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	e, err := d.Memory.CompileIn(p, arena)
	return remoteExecutable{e, d}, err
}

type remoteExecutable struct {
	backend.Executable
	dev *Remote
}

// Run implements backend.Executable.
func (e remoteExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	args.Buffers, args.Dims = slices.Clone(args.Buffers), slices.Clone(args.Dims)
	return e.dev.submit(func() (backend.Fence, error) { return e.Executable.Run(ctx, args) }), nil
}
