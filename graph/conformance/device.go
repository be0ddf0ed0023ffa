package conformance

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// bytesType returns the type of n bytes.
func bytesType(n int) ir.Type { return ir.Type{DType: tensor.U8, Shape: ir.ShapeOf(n)} }

// stranger is a buffer that belongs to no backend.
type stranger struct{}

func (stranger) Size() int { return 64 }
func (stranger) Free()     {}

// runDevice checks the contracts of the interfaces in package backend.
func runDevice(t *testing.T, dev backend.Device) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, dev backend.Device)
	}{
		{"info", testInfo}, {"alloc", testAlloc}, {"copies", testCopies}, {"freed", testFreed}, {"import", testImport},
		{"strangers", testStrangers}, {"arguments", testArguments}, {"cancelled", testCancelled}, {"closed", testClosed},
		{"again", testAgain}, {"flights", testFlights}, {"in order", testInOrder}, {"concurrent", testConcurrent}, {"divided", testDivided}, {"parts", testParts}, {"shared", testShared}, {"company", testCompany}, {"peak", testPeak}, {"read", testRead},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, dev) })
	}
}

func testInfo(t *testing.T, dev backend.Device) {
	assert.NotEmpty(t, dev.Info().Backend)
	assert.NotEmpty(t, dev.Info().Name)
	assert.GreaterOrEqual(t, dev.Info().Memory, int64(0))
	_, loads := dev.(backend.Loader)
	assert.True(t, loads || len(dev.Info().Quantizes) == 0, "what loads nothing makes no blocks as it loads")
}

func alloc(t testing.TB, dev backend.Device, n int) backend.Buffer {
	t.Helper()
	b, err := dev.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(b.Free)
	return b
}

func testAlloc(t *testing.T, dev backend.Device) {
	for _, n := range []int{0, 1, 63, 4096, 100_003} {
		b := alloc(t, dev, n)
		require.Equal(t, n, b.Size())
		got := poison(n)
		download(t, dev, got, b)
		require.True(t, bytes.Equal(make([]byte, n), got), "memory is zero at first")
	}
	_, err := dev.Alloc(-1)
	require.Error(t, err)
	if strconv.IntSize == 64 { // on 32-bit systems this size may be valid
		_, err = dev.Alloc(math.MaxInt/2 + 1)
		require.ErrorIs(t, err, backend.ErrOutOfMemory)
	}
}

func testCopies(t *testing.T, dev backend.Device) {
	b := alloc(t, dev, 8)
	require.NoError(t, wait(dev.Upload(b, 3, []byte{1, 2, 3})))
	got := make([]byte, 8)
	download(t, dev, got, b)
	require.Equal(t, []byte{0, 0, 0, 1, 2, 3, 0, 0}, got)
	require.NoError(t, wait(dev.Download(got[:2], b, 4)))
	require.Equal(t, []byte{2, 3}, got[:2])
	require.Error(t, wait(dev.Upload(b, 6, []byte{1, 2, 3})))
	require.Error(t, wait(dev.Upload(b, -1, []byte{1})))
	require.Error(t, wait(dev.Download(got, b, 1)))
	require.Error(t, wait(dev.Download(got[:1], b, -1)))
	download(t, dev, got, b)
	require.Equal(t, []byte{0, 0, 0, 1, 2, 3, 0, 0}, got, "a refused upload writes nothing")
}

// testDivided checks that buffers in one block of memory are separate, and that the block lives until the last of them
// is freed.
func testDivided(t *testing.T, dev backend.Device) {
	d, ok := dev.(backend.Memory)
	if !ok {
		t.Skip("its memory cannot be divided")
	}
	sizes := []int{100, 0, 64, 5 << 20}
	parts, err := d.AllocAll(sizes)
	require.NoError(t, err)
	require.Len(t, parts, len(sizes))
	for i, n := range sizes {
		require.Equal(t, n, parts[i].Size())
		got := poison(n)
		download(t, dev, got, parts[i])
		require.True(t, bytes.Equal(make([]byte, n), got), "memory is zero at first")
		require.NoError(t, wait(dev.Upload(parts[i], 0, bytes.Repeat([]byte{byte(i + 1)}, n))))
		require.Error(t, wait(dev.Upload(parts[i], n, []byte{1})), "a part has an end")
	}
	for i, n := range sizes {
		got := make([]byte, n)
		download(t, dev, got, parts[i])
		require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(i + 1)}, n), got), "freeing others does nothing to it")
		parts[i].Free()
		parts[i].Free()
		require.ErrorIs(t, wait(dev.Download(got, parts[i], 0)), backend.ErrClosed)
	}
	none, err := d.AllocAll(nil)
	require.NoError(t, err)
	require.Empty(t, none)
	for _, wrong := range [][]int{{1, -1}, {math.MaxInt, 5}} {
		_, err = d.AllocAll(wrong)
		require.Error(t, err)
	}
}

func testFreed(t *testing.T, dev backend.Device) {
	b := alloc(t, dev, 8)
	b.Free()
	b.Free()
	require.ErrorIs(t, wait(dev.Upload(b, 0, []byte{1})), backend.ErrClosed)
	require.ErrorIs(t, wait(dev.Download(make([]byte, 1), b, 0)), backend.ErrClosed)
}

func testImport(t *testing.T, dev backend.Device) {
	src := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	b, err := dev.Import(weights.Data{Bytes: src, Keep: t})
	require.NoError(t, err)
	defer b.Free()
	require.Equal(t, len(src), b.Size())
	got := make([]byte, len(src))
	download(t, dev, got, b)
	require.Equal(t, src, got)
	require.Error(t, wait(dev.Upload(b, 0, []byte{9})), "imported memory is read only")

	p := negate(t)
	e, err := dev.Compile(p)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	x, y := alloc(t, dev, 8), b
	require.Error(t, wait(e.Run(context.Background(), backend.Args{Buffers: []backend.Buffer{x, y}, Dims: []int{0}})),
		"a program does not write into imported memory")
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, src)
}

// negate returns the program y = -x on two numbers.
func negate(t *testing.T) *ir.Program {
	t.Helper()
	g := ir.New()
	x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(2)})
	p, err := exec.Plan(g, exec.Spec{Results: []exec.Result{{Name: "y", Value: g.Unary(ir.Neg, x)}}}, nil)
	require.NoError(t, err)
	return p
}

func testStrangers(t *testing.T, dev backend.Device) {
	require.Error(t, wait(dev.Upload(stranger{}, 0, []byte{1})))
	require.Error(t, wait(dev.Download(make([]byte, 1), stranger{}, 0)))
	e, err := dev.Compile(negate(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	require.Error(t, wait(e.Run(context.Background(), backend.Args{Buffers: []backend.Buffer{stranger{}, stranger{}}, Dims: []int{0}})))
}

func testArguments(t *testing.T, dev backend.Device) {
	e, err := dev.Compile(negate(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	ctx, x, y := context.Background(), alloc(t, dev, 8), alloc(t, dev, 8)
	require.NoError(t, wait(e.Run(ctx, backend.Args{Buffers: []backend.Buffer{x, y}, Dims: []int{0}})))
	require.Error(t, wait(e.Run(ctx, backend.Args{Buffers: []backend.Buffer{x}, Dims: []int{0}})), "too few buffers")
	require.Error(t, wait(e.Run(ctx, backend.Args{Buffers: []backend.Buffer{x, nil}, Dims: []int{0}})), "no buffer")
	require.Error(t, wait(e.Run(ctx, backend.Args{Buffers: []backend.Buffer{x, alloc(t, dev, 4)}, Dims: []int{0}})), "a short buffer")
}

func testCancelled(t *testing.T, dev backend.Device) {
	e, err := dev.Compile(negate(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	args := backend.Args{Buffers: []backend.Buffer{alloc(t, dev, 8), alloc(t, dev, 8)}, Dims: []int{0}}
	require.ErrorIs(t, wait(e.Run(ctx, args)), context.Canceled)
	require.NoError(t, wait(e.Run(context.Background(), args)), "the executable lives on")
}

func testClosed(t *testing.T, dev backend.Device) {
	e, err := dev.Compile(negate(t))
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	args := backend.Args{Buffers: []backend.Buffer{alloc(t, dev, 8), alloc(t, dev, 8)}, Dims: []int{0}}
	require.ErrorIs(t, wait(e.Run(context.Background(), args)), backend.ErrClosed)
}

// mlp returns a case with products, attention and much reused memory.
func mlp() *testCase {
	return &testCase{name: "mlp", bounds: "n=9/12",
		in: []input{arg("f32[n,32]", normal), arg("bf16[64,32]", normal), arg("f32[32,64]", normal), arg("f32[32]", positive),
			arg("i32[n]", interval(causal).fill(false)), arg("i32[n]", interval(causal).fill(true))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			x := in[0]
			for range 3 {
				h := g.Linear(g.RMSNorm(x, in[3], 1e-6), in[1], 0)
				h = g.GLU(h, g.Unary(ir.Tanh, h), ir.SiLU)
				x = g.Add(x, g.Linear(h, in[2], 0))
				o, _ := g.Attention(x, x, x, in[4], in[5], heads(4, 4, 8))
				x = g.Add(x, o)
			}
			return one(x)
		}}
}

// testAgain runs one executable several times, with other sizes in between. Nothing may leak from one run to the next.
func testAgain(t *testing.T, dev backend.Device) {
	s := mlp().set(t)
	e, err := exec.Compile(s.g, exec.Spec{Results: []exec.Result{{Name: "out0", Value: s.outs[0]}}}, dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	want := s.runExecutable(t, dev, e, s.outs)
	small := mlp()
	small.bounds = "n=4/12"
	s2 := small.set(t)
	first := s2.runExecutable(t, dev, e, s2.outs)
	require.Equal(t, want, s.runExecutable(t, dev, e, s.outs))
	require.Equal(t, first, s2.run(t, dev, s2.outs, exec.Spec{}), "a run does not depend on the one before")
}

// testConcurrent runs executables of one device from several goroutines.
func testConcurrent(t *testing.T, dev backend.Device) {
	s := mlp().set(t)
	want := s.run(t, dev, s.outs, exec.Spec{})
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for range 3 {
				s := mlp().set(t)
				require.Equal(t, want, s.run(t, dev, s.outs, exec.Spec{}))
			}
		})
	}
}
