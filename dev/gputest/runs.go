package gputest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// Wait requires that something is given, and waits for it.
func Wait(t *testing.T) func(f backend.Fence, err error) {
	return func(f backend.Fence, err error) {
		t.Helper()
		require.NoError(t, done(f, err))
	}
}

// Noise returns n bytes generated from seed.
func Noise(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Scaled is y = -exp(x) for n rows, two launches, with a buffer for x and y.
func Scaled(t *testing.T, dev backend.Device) *exec.Executable {
	t.Helper()
	g := graph.New()
	n := g.Bound("n", 8)
	x := g.Param("x", tensor.F32, n, ir.Static(64))
	e, err := g.Program().Result("y", x.Apply(ir.Exp).Apply(ir.Neg)).Compile(dev)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	for _, name := range []string{"x", "y"} {
		b, err := dev.Alloc(4 * 8 * 64)
		require.NoError(t, err)
		t.Cleanup(b.Free)
		require.NoError(t, e.Bind(name, b))
	}
	return e
}

// Twice is runs of a program of two kernels: y = -exp(x) + x.
func Twice(dev backend.Device) (err error) {
	g := ir.New()
	x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(64)})
	p, err := exec.Plan(g, exec.Spec{Results: []exec.Result{{Name: "y", Value: g.Add(g.Unary(ir.Neg, g.Unary(ir.Exp, x)), x)}}}, nil)
	if err != nil {
		return err
	}
	e, err := dev.Compile(p)
	if err != nil {
		return err
	}
	defer e.Close()
	buffers := make([]backend.Buffer, 2)
	for i := range buffers {
		if buffers[i], err = dev.Alloc(256); err != nil {
			return err
		}
		defer buffers[i].Free()
	}
	for range 3 { // as launches, and as a graph if supported
		f, err := e.Run(context.Background(), backend.Args{Buffers: buffers, Dims: []int{0}})
		if err == nil {
			err = f.Wait(context.Background())
		}
		if err != nil {
			return err
		}
	}
	got := make([]byte, 256)
	f, err := dev.Download(got, buffers[1], 0)
	if err == nil {
		err = f.Wait(context.Background())
	}
	if err == nil && string(got[:4]) != "\x00\x00\x80\xbf" { // -1
		err = fmt.Errorf("wrong result %v", got[:4])
	}
	return err
}

// LargeCopies checks that copies larger than the staging memory are complete: in both directions, several at once, and
// in parts. The source of an upload may be reused immediately.
func LargeCopies(t *testing.T, dev backend.Device) {
	const n = 19<<20 + 13
	var all sync.WaitGroup
	for i := range uint64(3) {
		all.Go(func() {
			want := Noise(n, i)
			b, err := dev.Alloc(n + 5)
			if !assert.NoError(t, err) {
				return
			}
			defer b.Free()
			src := bytes.Clone(want)
			up, err := dev.Upload(b, 5, src)
			clear(src)
			got, head := make([]byte, n), make([]byte, 5)
			down, err2 := dev.Download(got, b, 5) // in the order of the calls
			_, err3 := dev.Download(head, b, 0)
			if assert.NoError(t, err) && assert.NoError(t, err2) && assert.NoError(t, err3) {
				assert.NoError(t, down.Wait(context.Background()))
				assert.NoError(t, up.Wait(context.Background()))
				assert.True(t, bytes.Equal(want, got))
			}
		})
	}
	all.Wait()
	src := Noise(n, 9)
	b, err := dev.Import(weights.Data{Bytes: src})
	require.NoError(t, err)
	want := bytes.Clone(src)
	clear(src) // it has been read
	got := make([]byte, 1000)
	Wait(t)(dev.Download(got, b, n-1000))
	require.True(t, bytes.Equal(want[n-1000:], got))
	b.Free()
}

// Closed checks that a closed device rejects all calls, and that its remaining objects can still be closed. It closes
// dev. programs returns the number of executables that still hold memory.
func Closed(t *testing.T, dev backend.Device, programs func() int) {
	b, err := dev.Alloc(64)
	require.NoError(t, err)
	p := &ir.Program{Bounds: make([]ir.Bound, 1)}
	e, err := dev.Compile(p)
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	require.NoError(t, dev.Close(), "closing twice does nothing")
	require.Zero(t, programs())
	_, err = dev.Alloc(8)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = dev.Import(weights.Data{Bytes: []byte{1}})
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = dev.Upload(b, 0, []byte{1})
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = dev.Download(make([]byte, 1), b, 0)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = dev.Compile(p)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = e.Run(context.Background(), backend.Args{Dims: []int{0}})
	require.ErrorIs(t, err, backend.ErrClosed)
	require.NoError(t, e.Close())
	b.Free()
}

// Order: uploads, runs and downloads happen in the order of the calls, whether anybody
// waits for them or not.
func Order(t *testing.T, dev backend.Device) {
	const n = 5 << 18 // more than a piece of a copy has
	g := graph.New()
	p, err := exec.Plan(g.IR(), exec.Spec{Results: []exec.Result{{Name: "y", Value: g.Param("x", tensor.U32, ir.Static(n)).Slice(0, n-64, n).Value()}}}, nil)
	require.NoError(t, err)
	e, err := dev.Compile(p)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	x, err := dev.Alloc(4 * n)
	require.NoError(t, err)
	y, err := dev.Alloc(4 * 64)
	require.NoError(t, err)
	data := make([]byte, 4*n)
	got := make([][]byte, 12)
	var last backend.Fence
	for i := range got {
		copy(data[4*n-256:], bytes.Repeat([]byte{byte(i + 1)}, 256))
		_, err = dev.Upload(x, 0, data)
		require.NoError(t, err)
		_, err = e.Run(context.Background(), backend.Args{Buffers: []backend.Buffer{x, y}, Dims: []int{0}})
		require.NoError(t, err)
		got[i] = make([]byte, 256)
		last, err = dev.Download(got[i], y, 0)
		require.NoError(t, err)
	}
	require.NoError(t, last.Wait(context.Background()))
	for i := range got {
		require.Equal(t, bytes.Repeat([]byte{byte(i + 1)}, 256), got[i], "run %d", i)
	}
}

// Profile: launches are measured, one by one, by a device that has been opened with
// profile.
func Profile(t *testing.T, dev backend.Device, profile *backend.Profile) {
	e := Scaled(t, dev)
	require.NoError(t, e.SetDim("n", 5))
	for range 3 {
		require.NoError(t, e.RunWait(context.Background()))
	}
	rows := profile.Rows()
	require.Len(t, rows, 1, "both launches are unary and of one shape")
	require.Equal(t, 6, rows[0].Calls)
	require.Positive(t, rows[0].Time)
}

// Restless checks that buffers may be freed and contexts may end while runs are pending.
func Restless(t *testing.T, dev backend.Device) {
	e := Scaled(t, dev)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 20 {
				b, err := dev.Alloc(1000 + i)
				if !assert.NoError(t, err) {
					return
				}
				_, err = dev.Upload(b, i, Noise(1000, 1))
				assert.NoError(t, err)
				b.Free()
			}
		})
	}
	for i := range 40 {
		f, err := e.Run(ctx)
		if i == 30 {
			cancel()
		}
		if err == nil {
			err = f.Wait(context.Background())
		}
		if i > 30 {
			require.ErrorIs(t, err, context.Canceled)
		} else if i < 30 {
			require.NoError(t, err)
		}
	}
	all.Wait()
	cancel()
}
