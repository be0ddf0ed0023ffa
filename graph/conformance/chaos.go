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
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/weights"
)

// Chaos wraps a device so that mistakes of its users and of its kernels show:
// uploads, downloads and runs happen later, in their order, after random
// delays; the memory of every result is full of NaN (all bits set) until it is
// made, as is the destination of a download; a buffer that is freed while work
// on it is under way makes that work fail; a fence fails that is waited for when it
// is no longer good. Closing it closes dev.
func Chaos(dev backend.Device, seed uint64) backend.Device {
	c := &chaos{Device: dev, queue: make(chan func(), 1024), random: rand.New(rand.NewPCG(seed, 0))}
	c.ended.Add(1)
	go c.work()
	return c
}

type chaos struct {
	backend.Device
	queue  chan func()
	random *rand.Rand // of the worker
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

// Close waits for the work under way.
func (c *chaos) Close() (err error) {
	c.close.Do(func() {
		close(c.queue)
		c.ended.Wait()
		err = c.Device.Close()
	})
	return err
}

// later is the fence of work in the queue.
type later struct {
	done  chan struct{}
	err   error
	stale atomic.Bool
}

func (l *later) Wait(ctx context.Context) error {
	if l.stale.Load() {
		return fmt.Errorf("chaos: a fence is waited for after %d more runs were given", backend.Flights)
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

// doomed is a buffer that is freed when the work before it is done.
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

// alive gives the buffer within b, unless b was freed.
func alive(b backend.Buffer) (backend.Buffer, error) {
	d, ok := b.(*doomed)
	switch {
	case !ok:
		return b, nil // a stranger: let the device refuse it
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

// poison is n bytes that are NaN as floats.
func poison(n int) []byte { return bytes.Repeat([]byte{0xff}, n) }

// Compile makes a program of its own of every launch, with the arena as one
// more argument, so that memory can be poisoned between them.
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

// single is the program of launch i of p over its arguments and its arena.
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
	fences [backend.Flights]*later // of the last runs
	next   int
}

// Run copies what it is given: the caller may change it when Run returns.
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

// spoil fills the outputs of a launch with NaN, but for those that it makes
// out of what lies there.
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

// shared is a device that somebody else closes.
type shared struct{ backend.Device }

// Close does nothing.
func (shared) Close() error { return nil }

// runChaos requires the same bytes under delays and poison: values and gradients.
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
