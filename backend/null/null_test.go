package null_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestRegistered(t *testing.T) {
	dev, err := backend.Open(backend.Null, backend.Options{})
	require.NoError(t, err)
	assert.Equal(t, backend.Null, dev.Info().Backend)
	infos, err := backend.Devices(backend.Null)
	require.NoError(t, err)
	assert.Len(t, infos, 1)
	_, err = backend.Open(backend.Null, backend.Options{Index: 1})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	_, err = backend.Open(backend.Auto, backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable, "nobody gets it without asking")
}

func TestMemory(t *testing.T) {
	dev := &null.Device{Memory: 100}
	a, err := dev.Alloc(60)
	require.NoError(t, err)
	_, err = dev.Alloc(41)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	assert.ErrorContains(t, err, "asked for 41 bytes, 40 of 100 are free")
	b, err := dev.Import(weights.Data{Bytes: make([]byte, 40)})
	require.NoError(t, err)
	a.Free()
	a.Free()
	now, peak := dev.Held()
	assert.EqualValues(t, 40, now)
	assert.EqualValues(t, 100, peak)
	_, err = dev.Upload(a, 0, nil)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = dev.Upload(b, 30, make([]byte, 11))
	require.Error(t, err)
	got := []byte{1, 2}
	_, err = dev.Download(got, b, 38)
	require.NoError(t, err)
	assert.Equal(t, []byte{0, 0}, got)
	_, err = dev.Alloc(-1)
	require.Error(t, err)
	require.NoError(t, dev.Close())
	_, err = dev.Alloc(1)
	require.ErrorIs(t, err, backend.ErrClosed)
}

func formula() *graph.Program {
	g := graph.New()
	x := g.Param("x", tensor.F32, g.Bound("n", 8), ir.Static(16))
	return g.Program().Result("y", x.Apply(ir.Tanh).Softmax().MatMulT(g.Param("w", tensor.BF16, ir.Static(4), ir.Static(16))))
}

func TestCompileAndRun(t *testing.T) {
	dev := &null.Device{}
	e, err := formula().Compile(dev)
	require.NoError(t, err)
	now, _ := dev.Held()
	assert.EqualValues(t, 8*16*4, now, "the arena")
	ctx := context.Background()
	for name, size := range map[string]int{"x": 8 * 16 * 4, "w": 4 * 16 * 2, "y": 8 * 4 * 4} {
		b, err := dev.Alloc(size)
		require.NoError(t, err)
		require.NoError(t, e.Bind(name, b))
	}
	require.NoError(t, e.RunWait(ctx))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, e.RunWait(ended), context.Canceled)
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.RunWait(ctx), backend.ErrClosed)

	_, err = formula().Compile(&null.Device{Memory: 100})
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
}

func TestClaims(t *testing.T) {
	none := func(ir.Op, any, []ir.Type) bool { return false }
	dev := &null.Device{Claims: none}
	e, err := formula().Compile(dev)
	require.NoError(t, err)
	for _, l := range e.Program().Launches {
		assert.False(t, l.Op.IsComposite(), "%v", l.Op)
	}
	whole, err := formula().Plan(nil)
	require.NoError(t, err)
	assert.Equal(t, whole.String(), e.Program().String())
	all, err := formula().Compile(&null.Device{})
	require.NoError(t, err)
	_, err = dev.Compile(all.Program())
	require.ErrorIs(t, err, backend.ErrUnsupported)
	all.Program().Arena = 1
	_, err = dev.Compile(all.Program())
	require.ErrorContains(t, err, "ends past the arena")
}

// Will it fit? A program is compiled for a machine that is not there.
func Example() {
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(1024), ir.Static(1024))
	p := g.Program().Result("y", x.MatMul(x).Softmax().MatMul(x))
	_, err := p.Compile(&null.Device{Memory: 1 << 20})
	fmt.Println(err)
	dev := &null.Device{Memory: 1 << 30}
	if _, err := p.Compile(dev); err == nil {
		held, _ := dev.Held()
		fmt.Println(held>>20, "MiB beside the arguments")
	}
	// Output:
	// null: out of memory: asked for 4194304 bytes, 1048576 of 1048576 are free
	// 4 MiB beside the arguments
}
