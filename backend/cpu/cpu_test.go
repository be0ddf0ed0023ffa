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

// TestFirstRun: what a run takes is made when the program is compiled, for the
// largest sizes, so that not even the first run of a size allocates.
func TestFirstRun(t *testing.T) {
	dev, err := cpu.Open(backend.Options{Threads: 2})
	require.NoError(t, err)
	defer dev.Close()
	g := graph.New()
	n, static := g.Bound("n", 600), ir.Static
	x, ids := g.Param("x", tensor.F32, n, static(256)), g.Param("ids", tensor.I32, n)
	w, a := g.Param("w", tensor.BF16, static(256), static(256)), g.Param("a", tensor.F32, static(8), static(256))
	key := g.Of(g.IR().Param("key", ir.RandomKey))
	y := x.LoRA(w, graph.Tensor{}, x.LoRADown(a, key, ir.DropoutAttr{P: 0.5}), g.Param("b", tensor.F32, static(256), static(8)), 2)
	hi := g.Param("hi", tensor.I32, n)
	y = y.Attention(y, y, ids, hi, ir.AttentionAttr{Heads: 8, KVHeads: 8, HeadDim: 32, Scale: 1})
	z := x.Linear(w, graph.Tensor{}).Add(x.Linear(g.Param("v", tensor.BF16, static(256), static(256)), graph.Tensor{})) // siblings
	loss := y.Softmax().GLU(x, ir.SiLU).Add(y).Add(z).LinearCrossEntropy(w, ids)
	p := g.Program().Result("loss", loss).Result("grad", g.Gradients(loss, []graph.Tensor{a}, false)[0])
	e, err := p.Compile(dev)
	require.NoError(t, err)
	defer e.Close()
	for _, arg := range e.Program().Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		defer b.Free()
		require.NoError(t, e.Bind(arg.Name, b))
		if arg.Name == "hi" { // causal
			var data []byte
			for i := range uint32(600) {
				data = binary.LittleEndian.AppendUint32(data, i+1)
			}
			_, err := dev.Upload(b, 0, data)
			require.NoError(t, err)
		}
	}
	for _, size := range []int{3, 600, 65, 1} {
		require.NoError(t, e.SetDim("n", size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, e.RunWait(context.Background()))
		runtime.ReadMemStats(&after)
		// The runtime makes some hundred bytes of its own when goroutines first wait.
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<10), "bytes allocated by the first run with %d rows", size)
	}
}

// Buffers of one stretch of memory are apart, and it is there until the last is
// freed.
func TestAllocAll(t *testing.T) {
	dev, err := cpu.Open(backend.Options{Threads: 1})
	require.NoError(t, err)
	defer dev.Close()
	sizes := []int{100, 0, 64, 5 << 20}
	parts, err := dev.AllocAll(sizes)
	require.NoError(t, err)
	require.Len(t, parts, len(sizes))
	for i, n := range sizes {
		require.Equal(t, n, parts[i].Size())
		data := make([]byte, n)
		_, err := dev.Download(data, parts[i], 0)
		require.NoError(t, err)
		for j := range data {
			require.Zero(t, data[j])
			data[j] = byte(i + 1)
		}
		_, err = dev.Upload(parts[i], 0, data)
		require.NoError(t, err)
		_, err = dev.Upload(parts[i], n, []byte{1})
		require.Error(t, err, "a part has an end")
	}
	for i, n := range sizes {
		data := make([]byte, n)
		_, err := dev.Download(data, parts[i], 0)
		require.NoError(t, err, "freeing others does nothing to it")
		for _, b := range data {
			require.EqualValues(t, i+1, b)
		}
		parts[i].Free()
		parts[i].Free()
		_, err = dev.Download(data, parts[i], 0)
		require.ErrorIs(t, err, backend.ErrClosed)
	}
	none, err := dev.AllocAll(nil)
	require.NoError(t, err)
	require.Empty(t, none)
	for _, wrong := range [][]int{{1, -1}, {math.MaxInt, 5}} {
		_, err = dev.AllocAll(wrong)
		require.Error(t, err)
	}
}
