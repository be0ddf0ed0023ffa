package cpu

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/tensor"
)

// Launches with one mask drop the same elements, in every run those that its key
// says, whatever was kept of runs before it.
func TestKeptMask(t *testing.T) {
	dev, err := Open(backend.Options{Threads: 2})
	require.NoError(t, err)
	defer dev.Close()
	const rows, cols = 40, 80
	g := graph.New()
	n := g.Bound("n", rows)
	key := g.Of(g.IR().Param("key", ir.RandomKey))
	x, dh := g.Param("x", tensor.F32, n, ir.Static(cols)), g.Param("dh", tensor.F32, n, ir.Static(1))
	a := g.Param("a", tensor.F32, ir.Static(1), ir.Static(cols))
	d := ir.DropoutAttr{P: 0.3, Stream: 5}
	apply := func(op ir.Op, in ...graph.Tensor) graph.Tensor {
		var vs []ir.Value
		for _, v := range in {
			vs = append(vs, v.Value())
		}
		return g.Of(g.IR().Apply(op, d, vs...))
	}
	c, err := g.Program().Result("dropped", apply(ir.Dropout, x, key)).Result("dx", apply(ir.LoRADownInputGrad, dh, a, key)).
		Result("da", apply(ir.LoRADownGrad, dh, x, key)).Compile(dev)
	require.NoError(t, err)
	defer c.Close()
	e, err := dev.Compile(c.Program())
	require.NoError(t, err)
	defer e.Close()
	masks := e.(*executable).run.masks
	if vec.Keeps() {
		require.Len(t, masks, 1)
		assert.Len(t, masks[0].bits, rows*cols/8)
	}

	args, data := backend.Args{Dims: append([]int(nil), g.IR().MaxDims()...)}, map[string][]byte{}
	for _, arg := range c.Program().Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		defer b.Free()
		args.Buffers = append(args.Buffers, b)
		data[arg.Name] = b.(*buffer).data
	}
	for _, name := range []string{"x", "dh", "a"} {
		for i, v := 0, view[float32](data[name], len(data[name])/4); i < len(v); i++ {
			v[i] = 1
		}
	}
	for _, run := range []struct {
		seed uint64
		step uint32
		rows int
	}{{1, 0, 7}, {1, 0, 7}, {1, 0, rows}, {1, 1, 3}, {2, 1, rows}, {1, 0, 9}} {
		binary.LittleEndian.PutUint64(data["key"], run.seed)
		binary.LittleEndian.PutUint32(data["key"][8:], run.step)
		args.Dims[1] = run.rows
		_, err := e.Run(context.Background(), args)
		require.NoError(t, err)
		mask, kept := philox.NewMask(run.seed, run.step, d.Stream, d.P), make([]float32, cols)
		for _, name := range []string{"dropped", "dx"} {
			for i, v := range view[float32](data[name], run.rows*cols) {
				want := float32(0)
				if mask.Keep(uint64(i)) {
					want = float32(1 / (1 - d.P))
					kept[i%cols] += want / 2 // of both
				}
				require.Equal(t, want, v, "%s of %+v, element %d", name, run, i)
			}
		}
		assert.InDeltaSlice(t, kept, view[float32](data["da"], cols), 1e-4, "%+v", run)
	}
}
