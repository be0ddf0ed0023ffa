package conformance

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// testParts checks that data written to a buffer can be read through its parts and vice versa, until the buffer is
// freed.
func testParts(t *testing.T, dev backend.Device) {
	d, ok := dev.(backend.Memory)
	if !ok {
		t.Skip("its memory cannot be divided")
	}
	const size = 2*backend.PartAlign + 8
	whole := alloc(t, dev, size)
	first, err := d.Part(whole, 0, backend.PartAlign)
	require.NoError(t, err)
	last, err := d.Part(whole, 2*backend.PartAlign, 8)
	require.NoError(t, err)
	require.Equal(t, 8, last.Size())
	numbers := make([]byte, size)
	copy(numbers[2*backend.PartAlign:], tensor.BytesOf([]float32{3, -4}))
	require.NoError(t, wait(dev.Upload(whole, 0, numbers)))

	e, err := dev.Compile(negate(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	args := backend.Args{Buffers: []backend.Buffer{last, first}, Dims: []int{0}}
	require.NoError(t, wait(e.Run(context.Background(), args)))
	got := make([]byte, 8)
	download(t, dev, got, whole)
	require.Equal(t, tensor.BytesOf([]float32{-3, 4}), got)
	require.Error(t, wait(dev.Upload(last, 4, make([]byte, 8))), "a part has an end")
	first.Free()
	download(t, dev, got, whole)
	require.ErrorIs(t, wait(dev.Download(got, first, 0)), backend.ErrClosed)
	for _, x := range [][2]int{{-backend.PartAlign, 8}, {1, 8}, {backend.PartAlign, size}, {0, -1}} {
		_, err := d.Part(whole, x[0], x[1])
		require.Error(t, err, "%d bytes at %d", x[1], x[0])
	}
	whole.Free()
	require.ErrorIs(t, wait(dev.Download(got, last, 0)), backend.ErrClosed)
	require.ErrorIs(t, wait(e.Run(context.Background(), args)), backend.ErrClosed)
	_, err = d.Part(stranger{}, 0, 8)
	require.Error(t, err)
}

// testShared checks that programs that share an arena give the same results as with arenas of their own.
func testShared(t *testing.T, dev backend.Device) {
	if _, ok := dev.(backend.Memory); !ok {
		t.Skip("its memory cannot be divided")
	}
	s := mlp().set(t)
	program := func(n int) *ir.Program {
		p, err := exec.Plan(s.g, exec.Spec{Results: []exec.Result{{Name: "out0", Value: s.outs[0]}}, NoReuse: n == 1}, dev.Supports)
		require.NoError(t, err)
		return p
	}
	programs := []*ir.Program{program(0), program(1)}
	require.NotEqual(t, programs[0].Arena, programs[1].Arena)
	arena := alloc(t, dev, max(programs[0].Arena, programs[1].Arena))
	var es []*exec.Executable
	for _, p := range programs {
		e, err := exec.Load(p, dev, arena)
		require.NoError(t, err)
		es = append(es, e)
	}
	own, err := exec.Load(programs[0], dev, nil)
	require.NoError(t, err)
	defer own.Close()
	want := s.runExecutable(t, dev, own, s.outs)
	for range 2 {
		for _, e := range es {
			require.Equal(t, want, s.runExecutable(t, dev, e, s.outs))
		}
	}
	require.NoError(t, es[0].Close())
	require.Equal(t, want, s.runExecutable(t, dev, es[1], s.outs), "closing one leaves the arena to the other")
	require.NoError(t, es[1].Close())
	_, err = exec.Load(programs[0], dev, alloc(t, dev, programs[0].Arena-1))
	require.Error(t, err, "the arena is too small")
	_, err = exec.Load(programs[0], dev, stranger{})
	require.Error(t, err)
}
