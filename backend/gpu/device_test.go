package gpu_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// host is a driver whose device is a few bytes of the host. What it launches ends when a
// test says so.
type host struct {
	*gpu.Device
	left, next int
	issued     uint64
	done       uint64
	under      []*gpu.Flight
	launched   []string
	fail       error // of the next launch
}

var errGone = errors.New("gone")

func newHost(bytes int) *host {
	h := &host{Device: &gpu.Device{}, left: bytes}
	h.Init("host", h, func() gpu.Target { return gpu.Target{Sizes: gpu.DefaultSizes()} })
	return h
}

func (h *host) Send(j gpu.Job) error { j.Perform(); return nil }

func (h *host) Explain(err error) error {
	if errors.Is(err, errGone) {
		return errors.Join(backend.ErrLost, err)
	}
	return err
}

func (h *host) Allocate(b *gpu.Block) error {
	if b.Bytes > h.left {
		return gpu.Exhausted("it is small")
	}
	h.left -= b.Bytes
	h.next += 1 << 20
	b.At, b.Host = gpu.Pointer(h.next), make([]byte, b.Bytes)
	return nil
}

func (h *host) Free(b *gpu.Block)      { h.left += b.Bytes }
func (h *host) Idle(b *gpu.Block) bool { return b.Used.Load() <= h.done }
func (h *host) Drain() error           { h.land(nil); return nil }

// land ends the work under way.
func (h *host) land(err error) {
	h.done = h.issued
	under := h.under
	h.under = nil
	for _, f := range under {
		f.Finish(err)
	}
}

func (h *host) Load(e *gpu.Executable) (gpu.Program, error) {
	return &hostProgram{e, h}, e.Find(func(*gpu.Kernel) (uintptr, error) { return 1, nil })
}

func (h *host) Upload(b *gpu.Buffer, off int, src []byte) (backend.Fence, error) {
	copy(b.Host(off, len(src)), src)
	return backend.Done{}, nil
}

func (h *host) Download(dst []byte, b *gpu.Buffer, off int) (backend.Fence, error) {
	copy(dst, b.Host(off, len(dst)))
	return backend.Done{}, nil
}

type hostProgram struct {
	*gpu.Executable
	*host
}

func (p *hostProgram) Close() {}

func (p *hostProgram) Launch(f *gpu.Flight) error {
	if p.host.Profile != nil {
		return f.Measure(func(from, to int) (time.Duration, error) { return time.Millisecond, p.take(from, to) })
	}
	return f.Batches(p.take)
}

func (p *hostProgram) take(from, to int) error {
	if p.fail != nil {
		return p.Blame(from, p.fail)
	}
	for _, k := range p.Plan.Kernels[from:to] {
		if k.Launch.Grid[0] > 0 {
			p.launched = append(p.launched, k.Name)
		}
	}
	return nil
}

func (p *hostProgram) Mark(f *gpu.Flight) error {
	p.issued++
	f.Use(p.issued)
	p.under = append(p.under, f)
	return nil
}

// negated is a program of two launches: y = -(-x), by way of the arena.
func negated() *ir.Program {
	t := ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(8)}
	x, y := ir.Ref{Space: ir.SpaceArg, Type: t}, ir.Ref{Space: ir.SpaceArg, Index: 1, Type: t}
	h := ir.Ref{Space: ir.SpaceArena, Type: t}
	attr := ir.UnaryAttr{Fn: ir.Neg}
	return &ir.Program{
		Bounds: make([]ir.Bound, 1), Arena: 32,
		Args: []ir.Arg{{Name: "x", Type: t}, {Name: "y", Type: t, Written: true}},
		Launches: []ir.Launch{
			{Op: ir.Unary, Attr: attr, In: []ir.Ref{x}, Out: []ir.Ref{h}},
			{Op: ir.Unary, Attr: attr, In: []ir.Ref{h}, Out: []ir.Ref{y}},
		},
	}
}

// TestExecutable: a run launches the kernels of its program, and its memory comes back
// when it has ended.
func TestExecutable(t *testing.T) {
	const all = 4096
	h := newHost(all)
	e, err := h.Compile(negated())
	require.NoError(t, err)
	args := backend.Args{Dims: []int{0}}
	for range 2 {
		b, err := h.Alloc(32)
		require.NoError(t, err)
		args.Buffers = append(args.Buffers, b)
	}
	f, err := e.Run(t.Context(), args)
	require.NoError(t, err)
	require.Equal(t, []string{"unary_neg_f32", "unary_neg_f32"}, h.launched)
	args.Buffers[0].Free()
	require.Equal(t, 1, h.Usage().Limbo, "a run uses it")
	_, err = e.Run(t.Context(), args)
	require.ErrorIs(t, err, backend.ErrClosed)
	require.EqualError(t, err, `argument "x": host: buffer: `+backend.ErrClosed.Error())
	h.land(nil)
	require.NoError(t, f.Wait(t.Context()))
	args.Buffers[1].Free()
	require.NoError(t, e.Close())
	require.Equal(t, gpu.Usage{}, h.Usage())
	require.Equal(t, all, h.left)
}

// TestFailedLaunch: the error names the launch, and a device that is lost stays so.
func TestFailedLaunch(t *testing.T) {
	h := newHost(4096)
	e, err := h.Compile(negated())
	require.NoError(t, err)
	whole, err := h.AllocAll([]int{32, 32})
	require.NoError(t, err)
	h.fail = errGone
	f, err := e.Run(t.Context(), backend.Args{Buffers: whole, Dims: []int{0}})
	require.NoError(t, err, "its fence tells")
	h.land(nil)
	err = f.Wait(context.Background())
	require.ErrorIs(t, err, backend.ErrLost)
	require.ErrorContains(t, err, "launch 0 Unary, kernel unary_neg_f32: gone")
	_, err = h.Alloc(8)
	require.ErrorIs(t, err, backend.ErrLost)
}

// TestExhausted: memory that is freed and in use is waited for, and an error says who
// has the rest.
func TestExhausted(t *testing.T) {
	h := newHost(4096)
	e, err := h.Compile(negated())
	require.NoError(t, err)
	b, err := h.Alloc(3000)
	require.NoError(t, err)
	_, err = h.Alloc(2000)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "asked for 2.0 KiB for a buffer, it is small; this process holds 2.9 KiB buffers, ")
	_, err = e.Run(t.Context(), backend.Args{Buffers: []backend.Buffer{b, b}, Dims: []int{0}})
	require.NoError(t, err)
	b.Free()
	_, err = h.Alloc(2000)
	require.NoError(t, err)
}
