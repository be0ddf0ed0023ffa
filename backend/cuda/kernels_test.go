//go:build cuda && linux

package cuda_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// What a graph's rules cannot know is refused when it is met, with its place;
// nothing is read or written outside of a value.
func TestContents(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, c := range []struct {
		want  string
		ids   []int32
		build func(g *graph.Graph, ids graph.Tensor) graph.Tensor
	}{
		{"cuda: GatherRows: id 7 at 1, the table has 4 rows", []int32{0, 7}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return g.Const(1, ir.Static(4), ir.Static(2)).Gather(ids)
		}},
		{"cuda: GatherRows: id -1 at 0, the table has 4 rows", []int32{-1, 9}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return g.Const(1, ir.Static(4), ir.Static(2)).Gather(ids)
		}},
		{"cuda: ScatterAddRows: id 3 at 0, the table has 3 rows", []int32{3, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return g.Of(g.IR().ScatterAddRows(g.Const(1, ir.Static(2), ir.Static(2)).Value(), ids.Value(), 3))
		}},
		{"cuda: UpdateRows: 2 rows at 3 do not fit a table of 4", []int32{3, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return g.Const(1, ir.Static(4), ir.Static(2)).UpdateRows(g.Const(1, ir.Static(2), ir.Static(2)), ids.Slice(0, 0, 1))
		}},
		{"cuda: UpdateRows: 2 rows at -1 do not fit a table of 4", []int32{-1, 0}, func(g *graph.Graph, ids graph.Tensor) graph.Tensor {
			return g.Const(1, ir.Static(4), ir.Static(2)).UpdateRows(g.Const(1, ir.Static(2), ir.Static(2)), ids.Slice(0, 0, 1))
		}},
	} {
		g := graph.New()
		ids := g.Param("ids", tensor.I32, ir.Static(2))
		y := c.build(g, ids)
		data := binary.LittleEndian.AppendUint32(nil, uint32(c.ids[0]))
		data = binary.LittleEndian.AppendUint32(data, uint32(c.ids[1]))
		_, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"ids": {DType: tensor.I32, Shape: []int{2}, Data: data}}, nil)
		require.EqualError(t, err, c.want)
		require.NotErrorIs(t, err, backend.ErrLost)
	}
	require.NoError(t, twice(dev), "the device lives on")
}

// TestEmpty runs operations on values without elements.
func TestEmpty(t *testing.T) {
	dev := opened(t, backend.Options{})
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
	for i, n := range map[int]int{4: 4, 7: 9, 8: 3} {
		sums, err := out[i].Float32s()
		require.NoError(t, err)
		assert.Equal(t, make([]float32, n), sums, "a sum of nothing")
	}
}

// TestNotFinite: a NaN goes through where it does on the CPU, and an infinite
// sum is infinite.
func TestNotFinite(t *testing.T) {
	dev := opened(t, backend.Options{})
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, inner := range []int{1, 3} { // reductions along the last axis, and along another
		for _, n := range []int{4, 700} {
			g := graph.New()
			x := g.Param("x", tensor.F32, ir.Static(3), ir.Static(n), ir.Static(inner))
			in := make([]float32, 3*n*inner)
			for i := range in {
				in[i] = float32(i % 5)
			}
			in[n*inner-inner], in[n*inner+inner], in[2*n*inner+2*inner] = nan, inf, -inf
			host, err := tensor.FromFloat32s(in, 3, n, inner)
			require.NoError(t, err)
			max := g.Of(g.IR().Reduce(ir.ReduceMax, x.Value(), 1))
			out, err := graph.Eval(context.Background(), dev, []graph.Tensor{x.Sum(1), max, x.Min(g.Const(2)), x.Apply(ir.IsFinite)}, map[string]*tensor.Tensor{"x": &host}, nil)
			require.NoError(t, err)
			floats := func(i int) []float32 {
				f, err := out[i].Float32s()
				require.NoError(t, err)
				return f
			}
			for i, want := range [][]float32{{nan, inf, -inf}, {nan, inf, 4}} {
				if n == 4 && i == 1 {
					want[2] = max3(in[2*n*inner:], n, inner)
				}
				for j, w := range want {
					requireSame(t, w, floats(i)[j*inner], fmt.Sprintf("%d of %d by %d", i, n, inner))
				}
			}
			requireSame(t, nan, floats(2)[n*inner-inner], "the smaller of NaN and 2")
			requireSame(t, 0, floats(3)[n*inner+inner], "infinity is not finite")
		}
	}
}

// max3 is the largest of every inner-th element.
func max3(x []float32, n, inner int) float32 {
	m := float32(math.Inf(-1))
	for i := range n {
		m = max(m, x[i*inner])
	}
	return m
}

func requireSame(t *testing.T, want, got float32, what string) {
	t.Helper()
	if want != want {
		require.True(t, got != got, "%s is %v, expected NaN", what, got)
		return
	}
	require.Equal(t, want, got, what)
}

// Casts have the bits of package tensor, in both directions, for all numbers
// that are special and many that are not.
func TestCasts(t *testing.T) {
	dev := opened(t, backend.Options{})
	r := rand.New(rand.NewPCG(1, 2))
	special := []float32{0, -0.5, 0.5, 1.5, 2.5, -2.5, 127.5, 128, 255.5, 256, -128.5, -129, 32767.5, 65535.5, 65504, 65519, 65520, 1e-8, 6e-8, 3e-8,
		-6.1e-5, 1e38, -1e38, 3.4e38, 2147483520, 2147483648, -2147483648, 4294967040, 4294967296, 9.2233715e18, 9.223372e18, 1.8446743e19, 1.8446744e19,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), float32(math.Copysign(0, -1)), 1, -1}
	x := special
	for len(x) < 2048 {
		x = append(x, math.Float32frombits(r.Uint32()), float32(r.NormFloat64()*300))
	}
	for _, d := range []tensor.DType{tensor.Bool, tensor.U8, tensor.I8, tensor.U16, tensor.I16, tensor.U32, tensor.I32, tensor.U64, tensor.I64,
		tensor.BF16, tensor.F16, tensor.F64, tensor.F8E5M2, tensor.F8E4M3, tensor.F8E8M0, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ} {
		t.Run(d.String(), func(t *testing.T) {
			want := make([]byte, d.Bytes(len(x)))
			require.NoError(t, tensor.FromFloat32(want, x, d))
			src := &tensor.Tensor{DType: tensor.F32, Shape: []int{len(x)}, Data: tensor.BytesOf(x)}
			require.Equal(t, want, cast(t, dev, src, d))

			raw := noise(d.Bytes(len(x)), 7)
			if d == tensor.Bool {
				for i := range raw {
					raw[i] &= 1
				}
			}
			wide := make([]float32, len(x))
			require.NoError(t, tensor.ToFloat32(wide, raw, d))
			in := &tensor.Tensor{DType: d, Shape: []int{len(x)}, Data: raw}
			results := [][]byte{cast(t, dev, in, tensor.F32)}
			if d.IsFloat() {
				results = append(results, gather(t, dev, in))
			}
			for _, got := range results {
				for i, w := range wide {
					g := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:]))
					if w == w || g == g {
						require.Equal(t, math.Float32bits(w), math.Float32bits(g), "element %d: %v, expected %v", i, g, w)
					}
				}
			}
		})
	}
}

// cast converts a tensor on the device.
func cast(t *testing.T, dev backend.Device, x *tensor.Tensor, to tensor.DType) []byte {
	t.Helper()
	g := graph.New()
	y := g.Param("x", x.DType, ir.Static(x.Shape[0])).Cast(to)
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"x": x}, nil)
	require.NoError(t, err)
	return out[0].Data
}

// gather takes all elements of x as the rows of a table.
func gather(t *testing.T, dev backend.Device, x *tensor.Tensor) []byte {
	t.Helper()
	g := graph.New()
	n := ir.Static(x.Shape[0])
	y := g.Param("x", x.DType, n, ir.Static(1)).Gather(g.Of(g.IR().Iota(0, ir.Shape{n})))
	table := &tensor.Tensor{DType: x.DType, Shape: []int{x.Shape[0], 1}, Data: x.Data}
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"x": table}, nil)
	require.NoError(t, err)
	return out[0].Data
}

// Random words are those of package philox, bit for bit, at any seed and step.
func TestPhilox(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, key := range [][3]uint32{{0, 0, 0}, {1, 2, 3}, {math.MaxUint32, math.MaxUint32, math.MaxUint32}} {
		g := graph.New()
		words := g.Of(g.IR().Philox(g.IR().Param("key", ir.RandomKey), 77, ir.ShapeOf(1027)))
		data := binary.LittleEndian.AppendUint32(nil, key[0])
		data = binary.LittleEndian.AppendUint32(data, key[1])
		data = binary.LittleEndian.AppendUint32(data, key[2])
		out, err := graph.Eval(context.Background(), dev, []graph.Tensor{words}, map[string]*tensor.Tensor{"key": {DType: tensor.U32, Shape: []int{3}, Data: data}}, nil)
		require.NoError(t, err)
		want := philox.NewStream(uint64(key[0])|uint64(key[1])<<32, key[2], 77)
		for i := range 1027 {
			require.Equal(t, want.Word(uint64(i)), binary.LittleEndian.Uint32(out[0].Data[4*i:]), "%v %d", key, i)
		}
	}
}

// Rows that are added to one row are added in their order.
func TestScatterOrder(t *testing.T) {
	dev := opened(t, backend.Options{})
	const n, d, rows = 600, 37, 5
	r := rand.New(rand.NewPCG(3, 4))
	x, ids, want := make([]float32, n*d), make([]int32, n), make([]float32, rows*d)
	for i := range ids {
		ids[i] = int32(r.IntN(rows-1)) + int32(i%2)
		for j := range d {
			x[i*d+j] = float32(r.NormFloat64() * math.Exp(5*r.NormFloat64()))
			want[int(ids[i])*d+j] += x[i*d+j]
		}
	}
	g := graph.New()
	y := g.Of(g.IR().ScatterAddRows(g.Param("x", tensor.F32, ir.Static(n), ir.Static(d)).Value(), g.Param("ids", tensor.I32, ir.Static(n)).Value(), rows))
	in, err := tensor.FromFloat32s(x, n, d)
	require.NoError(t, err)
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"x": &in, "ids": {DType: tensor.I32, Shape: []int{n}, Data: tensor.BytesOf(ids)}}, nil)
	require.NoError(t, err)
	got, err := out[0].Float32s()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
