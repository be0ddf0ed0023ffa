package testdevice

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Lossy is the CPU in the role of one of several devices, which can be lost.
type Lossy struct {
	backend.Device
	backend.Memory
	index int
	left  atomic.Int64 // runs before it is lost, if armed
	armed atomic.Bool
}

// NewLossy opens device number index until the test ends.
func NewLossy(t testing.TB, index int, o backend.Options) *Lossy {
	dev := OpenOn(t, backend.CPU, o)
	return &Lossy{Device: dev, Memory: dev.(backend.Memory), index: index}
}

// Info implements backend.Device.
func (d *Lossy) Info() backend.Info {
	i := d.Device.Info()
	i.Index = d.index
	return i
}

// Lose makes the device fail for good after n more runs.
func (d *Lossy) Lose(n int) {
	d.left.Store(int64(n))
	d.armed.Store(true)
}

// CompileIn implements backend.Memory.
func (d *Lossy) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	e, err := d.Memory.CompileIn(p, arena)
	return lossyExecutable{e, d}, err
}

type lossyExecutable struct {
	backend.Executable
	dev *Lossy
}

// Run implements backend.Executable.
func (e lossyExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	if e.dev.armed.Load() && e.dev.left.Add(-1) < 0 {
		return nil, fmt.Errorf("testdevice: device %d: %w", e.dev.index, backend.ErrLost)
	}
	return e.Executable.Run(ctx, args)
}
