package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestOpen(t *testing.T) {
	for _, threads := range []int{0, 1, 5} {
		dev, err := cpu.Open(backend.Options{Threads: threads})
		require.NoError(t, err)
		want := threads
		if threads == 0 {
			want = runtime.GOMAXPROCS(0)
		}
		assert.Contains(t, dev.Info().Detail, fmt.Sprintf("%d threads", want))
		require.NoError(t, dev.Close())
		require.NoError(t, dev.Close(), "closing twice does nothing")
	}
	_, err := cpu.Open(backend.Options{Index: 1})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	_, err = cpu.Open(backend.Options{Threads: -1})
	require.ErrorContains(t, err, "-1 threads")
	t.Setenv("LORAFUSE_CPU", "z80")
	_, err = cpu.Open(backend.Options{})
	require.ErrorContains(t, err, "LORAFUSE_CPU=z80")
	dev, err := backend.Open("cpu", backend.Options{})
	require.Error(t, err)
	require.Nil(t, dev)
}

// refusalCase is a graph on i32 params whose contents it must refuse.
type refusalCase struct {
	want  string
	ids   []int32
	build func(g *graph.Graph, ids graph.Tensor) graph.Tensor
}

var refusalCases = []refusalCase{
	{"cpu: GatherRows: id 7 at 1, the table has 4 rows", []int32{0, 7}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Const(1, ir.Static(4), ir.Static(2)).Gather(ids)
	}},
	{"cpu: GatherRows: id -1 at 0, the table has 4 rows", []int32{-1, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Const(1, ir.Static(4), ir.Static(2)).Gather(ids)
	}},
	{"cpu: ScatterAddRows: id 3 at 0, the table has 3 rows", []int32{3, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Of(g.IR().ScatterAddRows(g.Const(1, ir.Static(2), ir.Static(2)).Value(), ids.Value(), 3))
	}},
	{"cpu: UpdateRows: 2 rows at 3 do not fit a table of 4", []int32{3, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Const(1, ir.Static(4), ir.Static(2)).UpdateRows(g.Const(1, ir.Static(2), ir.Static(2)), ids.Slice(0, 0, 1))
	}},
	{"cpu: UpdateRows: 2 rows at -1 do not fit", []int32{-1, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Const(1, ir.Static(4), ir.Static(2)).UpdateRows(g.Const(1, ir.Static(2), ir.Static(2)), ids.Slice(0, 0, 1))
	}},
	{"cpu: CrossEntropy: label 5 at 1, the vocabulary has 5", []int32{0, 5}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Const(1, ir.Static(2), ir.Static(5)).CrossEntropy(ids)
	}},
	{"cpu: LinearCrossEntropy: label 6 at 0, the vocabulary has 5", []int32{6, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		return g.Const(1, ir.Static(2), ir.Static(3)).LinearCrossEntropy(g.Const(1, ir.Static(5), ir.Static(3)), ids)
	}},
	{"cpu: Attention: ", []int32{1, 3}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
		q := g.Const(1, ir.Static(2), ir.Static(4))
		return q.Attention(q, q, ids.Sub(ids), ids, ir.AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1})
	}},
}

// TestContents: what a graph's rules cannot know is refused when it is met,
// with its place; nothing is read or written outside of a value.
func TestContents(t *testing.T) {
	dev, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	for _, c := range refusalCases {
		g := graph.New()
		ids := g.Param("ids", tensor.I32, ir.Static(2))
		y := c.build(g, ids)
		data := binary.LittleEndian.AppendUint32(nil, uint32(c.ids[0]))
		data = binary.LittleEndian.AppendUint32(data, uint32(c.ids[1]))
		_, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"ids": {DType: tensor.I32, Shape: []int{2}, Data: data}}, nil)
		require.ErrorContains(t, err, c.want)
	}
}

// TestEmpty runs operations on values without elements.
func TestEmpty(t *testing.T) {
	dev, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	g := graph.New()
	s := ir.Static
	x := g.Param("x", tensor.F32, s(0), s(4))
	w := g.Param("w", tensor.F32, s(3), s(4))
	narrow := g.Param("narrow", tensor.F32, s(3), s(0))
	ts := []graph.Tensor{
		x.Apply(ir.Exp), x.Add(x), x.Mul(w.Slice(0, 0, 1)), x.Scale(2), x.Sum(0), x.Transpose(1, 0), x.Linear(w, graph.Tensor{}),
		narrow.MatMulT(narrow), narrow.Sum(1), graph.Concat(0, x, w), w.Slice(0, 1, 1), x.Softmax(), x.SumSquares(),
		x.RMSNorm(g.Const(1, s(4)), 1), x.GLU(x, ir.SiLU), narrow.Transpose(1, 0).MatMul(w),
	}
	empty := &tensor.Tensor{DType: tensor.F32, Shape: []int{0, 4}}
	twelve, err := tensor.FromFloat32s(make([]float32, 12), 3, 4)
	require.NoError(t, err)
	out, err := graph.Eval(context.Background(), dev, ts, map[string]*tensor.Tensor{"x": empty, "w": &twelve, "narrow": {DType: tensor.F32, Shape: []int{3, 0}}}, nil)
	require.NoError(t, err)
	sums, err := out[4].Float32s()
	require.NoError(t, err)
	assert.Equal(t, []float32{0, 0, 0, 0}, sums, "a sum of nothing")
	product, err := out[7].Float32s()
	require.NoError(t, err)
	assert.Equal(t, make([]float32, 9), product)
}

// TestNotFinite: a NaN goes through where PyTorch lets it through.
func TestNotFinite(t *testing.T) {
	dev, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(4))
	nan := float32(math.NaN())
	in, err := tensor.FromFloat32s([]float32{1, nan, 3, float32(math.Inf(1))}, 4)
	require.NoError(t, err)
	max := g.Of(g.IR().Reduce(ir.ReduceMax, x.Value(), 0))
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{max, x.Sum(0), x.Min(g.Const(2)), x.Apply(ir.IsFinite), x.SumSquares(), x.Softmax()},
		map[string]*tensor.Tensor{"x": &in}, nil)
	require.NoError(t, err)
	for i, want := range [][]float32{{nan}, {nan}, {1, nan, 2, 2}, {1, 0, 1, 0}, {nan}, {nan, nan, nan, nan}} {
		got, err := out[i].Float32s()
		require.NoError(t, err)
		for j := range want {
			assert.Equal(t, math.IsNaN(float64(want[j])), math.IsNaN(float64(got[j])), "%d: %v", i, got)
			if want[j] == want[j] {
				assert.Equal(t, want[j], got[j], "%d", i)
			}
		}
	}
}

// TestRunsAllocateNothingLarge: a step of training makes no garbage to speak of.
func TestRunsAllocateNothingLarge(t *testing.T) {
	dev, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(64), ir.Static(64))
	y := x
	for range 4 {
		y = y.Linear(x, graph.Tensor{}).Softmax().GLU(x, ir.SiLU).Add(y)
	}
	e, err := g.Program().Result("y", y).Compile(dev)
	require.NoError(t, err)
	defer e.Close()
	for _, name := range []string{"x", "y"} {
		b, err := dev.Alloc(64 * 64 * 4)
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, e.Bind(name, b))
	}
	ctx := context.Background()
	require.NoError(t, e.RunWait(ctx))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		require.NoError(t, e.RunWait(ctx))
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / 20
	assert.Less(t, per, uint64(32<<10), "bytes allocated by one run of %d launches", len(e.Program().Launches))
}
