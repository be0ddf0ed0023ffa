package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// Chaos wraps a device to reveal mistakes in its use and in its kernels. Uploads, downloads and runs happen later, in
// order, after random delays. The memory of every result, and of every download, is filled with NaN (all bits set)
// until it is written. Work on a buffer that is freed while the work is pending fails, and so does waiting for a fence
// that is no longer valid. Closing the wrapper closes dev.
func Chaos(dev backend.Device, seed uint64) backend.Device {
	c := &chaos{Device: dev, queue: make(chan func(), 1024), random: rand.New(rand.NewPCG(seed, 0))}
	c.ended.Add(1)
	go c.work()
	return c
}

type chaos struct {
	backend.Device
	queue  chan func()
	random *rand.Rand // used by the worker only
	ended  sync.WaitGroup
	close  sync.Once
}

func (c *chaos) work() {
	defer c.ended.Done()
	for f := range c.queue {
		if c.random.IntN(4) == 0 {
			time.Sleep(time.Duration(c.random.IntN(200)) * time.Microsecond)
		} else {
			runtime.Gosched()
		}
		f()
	}
}

// Close waits for pending work, then closes the device.
func (c *chaos) Close() (err error) {
	c.close.Do(func() {
		close(c.queue)
		c.ended.Wait()
		err = c.Device.Close()
	})
	return err
}

// later is the fence of queued work.
type later struct {
	done  chan struct{}
	err   error
	stale atomic.Bool
}

func (l *later) Wait(ctx context.Context) error {
	if l.stale.Load() {
		return fmt.Errorf("chaos: a fence is waited for after %d more runs were given", backend.MaxInFlight)
	}
	select {
	case <-l.done:
		return l.err
	default:
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *chaos) enqueue(f func() error) *later {
	l := &later{done: make(chan struct{})}
	c.queue <- func() {
		defer close(l.done)
		l.err = f()
	}
	return l
}

// doomed is a buffer that is freed after the work queued before Free is done.
type doomed struct {
	inner backend.Buffer
	chaos *chaos
	freed atomic.Bool
}

func (b *doomed) Size() int { return b.inner.Size() }

func (b *doomed) Free() {
	if !b.freed.Swap(true) {
		b.chaos.enqueue(func() error { b.inner.Free(); return nil })
	}
}

// alive returns the buffer inside b, or an error if b was freed.
func alive(b backend.Buffer) (backend.Buffer, error) {
	d, ok := b.(*doomed)
	switch {
	case !ok:
		return b, nil // a foreign buffer: let the device refuse it
	case d.freed.Load():
		return nil, fmt.Errorf("chaos: %w: a buffer is used after it was freed", backend.ErrClosed)
	}
	return d.inner, nil
}

func (c *chaos) wrap(b backend.Buffer, err error) (backend.Buffer, error) {
	if err != nil {
		return nil, err
	}
	return &doomed{inner: b, chaos: c}, nil
}

func (c *chaos) Alloc(n int) (backend.Buffer, error) { return c.wrap(c.Device.Alloc(n)) }

func (c *chaos) Import(src weights.Data) (backend.Buffer, error) {
	return c.wrap(c.Device.Import(src))
}

func (c *chaos) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	if _, err := alive(dst); err != nil {
		return nil, err
	}
	return c.enqueue(func() error {
		b, err := alive(dst)
		if err != nil {
			return err
		}
		return wait(c.Device.Upload(b, off, src))
	}), nil
}

func (c *chaos) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	if _, err := alive(src); err != nil {
		return nil, err
	}
	copy(dst, poison(len(dst)))
	return c.enqueue(func() error {
		b, err := alive(src)
		if err != nil {
			return err
		}
		return wait(c.Device.Download(dst, b, off))
	}), nil
}

func wait(f backend.Fence, err error) error {
	if err != nil {
		return err
	}
	return f.Wait(context.Background())
}

// poison returns n bytes that are NaN as floats.
func poison(n int) []byte { return bytes.Repeat([]byte{0xff}, n) }

// Compile compiles every launch as a program of its own, with the arena as an additional argument, so that memory can
// be poisoned between launches.
func (c *chaos) Compile(p *ir.Program) (backend.Executable, error) {
	arena, err := c.Device.Alloc(p.Arena)
	if err != nil {
		return nil, err
	}
	e := &chaosExecutable{chaos: c, prog: p, arena: arena}
	for i := range p.Launches {
		step := single(p, i)
		if err := step.Verify(); err != nil {
			return nil, fmt.Errorf("chaos: launch %d: %w", i, err)
		}
		x, err := c.Device.Compile(step)
		if err != nil {
			return nil, err
		}
		e.steps = append(e.steps, x)
	}
	return e, nil
}

// single returns launch i of p as a program over the arguments and the arena of p.
func single(p *ir.Program, i int) *ir.Program {
	arena := ir.Arg{Name: "\x00arena", Type: bytesType(p.Arena), Written: true}
	q := &ir.Program{Bounds: p.Bounds, Args: append(slices.Clone(p.Args), arena)}
	l := p.Launches[i]
	q.Launches = []ir.Launch{{Op: l.Op, Attr: l.Attr, In: relocate(l.In, len(p.Args)), Out: relocate(l.Out, len(p.Args))}}
	return q
}

func relocate(refs []ir.Ref, arena int) []ir.Ref {
	out := slices.Clone(refs)
	for i := range out {
		if out[i].Space == ir.SpaceArena {
			out[i].Space, out[i].Index = ir.SpaceArg, arena
		}
	}
	return out
}

type chaosExecutable struct {
	chaos  *chaos
	prog   *ir.Program
	arena  backend.Buffer
	steps  []backend.Executable
	closed atomic.Bool
	fences [backend.MaxInFlight]*later // fences of the last runs
	next   int
}

// Run copies its arguments, since the caller may change them when Run returns.
func (e *chaosExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	if e.closed.Load() {
		return nil, fmt.Errorf("chaos: executable: %w", backend.ErrClosed)
	}
	place := &e.fences[e.next]
	if before := *place; before != nil {
		select {
		case <-before.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		before.stale.Store(true)
	}
	args = backend.Args{Buffers: slices.Clone(args.Buffers), Dims: slices.Clone(args.Dims)}
	*place = e.chaos.enqueue(func() error { return e.run(ctx, args) })
	e.next = (e.next + 1) % len(e.fences)
	return *place, nil
}

func (e *chaosExecutable) run(ctx context.Context, args backend.Args) error {
	inner := make([]backend.Buffer, 0, len(args.Buffers)+1)
	for _, b := range args.Buffers {
		b, err := alive(b)
		if err != nil {
			return err
		}
		inner = append(inner, b)
	}
	inner = append(inner, e.arena)
	if err := wait(e.chaos.Device.Upload(e.arena, 0, poison(e.prog.Arena))); err != nil {
		return err
	}
	for i, step := range e.steps {
		if err := e.spoil(single(e.prog, i).Launches[0], inner); err != nil {
			return err
		}
		if err := wait(step.Run(ctx, backend.Args{Buffers: inner, Dims: args.Dims})); err != nil {
			return fmt.Errorf("launch %d: %w", i, err)
		}
	}
	return nil
}

// spoil fills the outputs of a launch with NaN, except outputs that the launch computes in place.
func (e *chaosExecutable) spoil(l ir.Launch, buffers []backend.Buffer) error {
	dims := e.prog.MaxDims()
	for _, o := range l.Out {
		n := o.Bytes(dims)
		if slices.ContainsFunc(l.In, func(in ir.Ref) bool {
			return in.Index == o.Index && in.Offset < o.Offset+n && o.Offset < in.Offset+in.Bytes(dims)
		}) {
			continue
		}
		if err := wait(e.chaos.Device.Upload(buffers[o.Index], o.Offset, poison(n))); err != nil {
			return err
		}
	}
	return nil
}

func (e *chaosExecutable) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return wait(e.chaos.enqueue(func() error {
		e.arena.Free()
		for _, s := range e.steps {
			if err := s.Close(); err != nil {
				return err
			}
		}
		return nil
	}), nil)
}

// shared is a device that the caller closes.
type shared struct{ backend.Device }

// Close does nothing.
func (shared) Close() error { return nil }

// runChaos requires the same bytes, of values and gradients, under delays and poison.
func runChaos(t *testing.T, dev backend.Device) {
	wild := Chaos(shared{dev}, 1)
	t.Cleanup(func() { require.NoError(t, wild.Close()) })
	eachQuick(t, func(t *testing.T, c *testCase) {
		s := c.amidst(t)
		outs := append(s.outs, s.gradients(t)...)
		want := s.run(t, dev, outs, exec.Spec{})
		got := s.run(t, wild, outs, exec.Spec{})
		for i := range want {
			require.True(t, bytes.Equal(want[i], got[i]), "output %d differs with poisoned memory", i)
		}
	})
}
