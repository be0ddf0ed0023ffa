package testdevice

import (
	"context"
	"errors"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Counted is a device that counts the operations of a host that are expensive on a remote device.
type Counted struct {
	backend.Device
	backend.Memory

	// Waits counts waits for work that was not yet waited for, nor any later work, through a fence or because no more
	// runs may be pending.
	Waits, Uploads, Runs int
	Arena                int // bytes of the largest that programs share

	given, reached int // numbers of submitted copies and runs, and of those waited for
}

// Count returns a device that counts the calls on dev, which must implement [backend.Memory].
func Count(dev backend.Device) *Counted {
	return &Counted{Device: dev, Memory: dev.(backend.Memory)}
}

// fence is the fence of submission n.
type fence struct {
	backend.Fence
	dev *Counted
	n   int
	of  *countedExecutable // the executable of a run, or nil
}

// Wait implements backend.Fence.
func (f fence) Wait(ctx context.Context) error {
	if f.of != nil && f.of.forgotten(f.n) {
		return errors.New("testdevice: a fence is waited for after backend.MaxInFlight more runs were given")
	}
	f.dev.wait(f.n)
	return f.Fence.Wait(ctx)
}

// wait records a wait for submission n.
func (c *Counted) wait(n int) {
	if n > c.reached {
		c.reached = n
		c.Waits++
	}
}

// counted numbers a submission and wraps its fence.
func (c *Counted) counted(f backend.Fence, err error, of *countedExecutable) (backend.Fence, error) {
	if err != nil {
		return nil, err
	}
	c.given++
	return fence{f, c, c.given, of}, nil
}

// Upload implements backend.Device.
func (c *Counted) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	c.Uploads++
	f, err := c.Device.Upload(dst, off, src)
	return c.counted(f, err, nil)
}

// Download implements backend.Device.
func (c *Counted) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	f, err := c.Device.Download(dst, src, off)
	return c.counted(f, err, nil)
}

// Compile implements backend.Device.
func (c *Counted) Compile(p *ir.Program) (backend.Executable, error) {
	e, err := c.Device.Compile(p)
	return &countedExecutable{Executable: e, dev: c}, err
}

// CompileIn implements backend.Memory.
func (c *Counted) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	c.Arena = max(c.Arena, arena.Size())
	e, err := c.Memory.CompileIn(p, arena)
	return &countedExecutable{Executable: e, dev: c}, err
}

// countedExecutable remembers the numbers of the last runs.
type countedExecutable struct {
	backend.Executable
	dev  *Counted
	runs [backend.MaxInFlight]int
	next int
}

// Run implements backend.Executable.
func (e *countedExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	e.dev.Runs++
	e.dev.wait(e.runs[e.next])
	f, err := e.Executable.Run(ctx, args)
	if f, err = e.dev.counted(f, err, e); err == nil {
		e.runs[e.next] = e.dev.given
		e.next = (e.next + 1) % len(e.runs)
	}
	return f, err
}

// forgotten reports whether the fence of submission n, a run, is obsolete.
func (e *countedExecutable) forgotten(n int) bool { return n < e.runs[e.next] }
