//go:build cuda && linux

package cuda_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

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
	y := g.Of(g.IR().ScatterAddRows(g.Param("x", tensor.F32, ir.Static(n), ir.Static(d)).Value(), g.Param("ids", tensor.I32, ir.Static(n)).Value(), ir.Static(rows)))
	in, err := tensor.FromFloat32s(x, n, d)
	require.NoError(t, err)
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"x": &in, "ids": {DType: tensor.I32, Shape: []int{n}, Data: tensor.BytesOf(ids)}}, nil)
	require.NoError(t, err)
	got, err := out[0].Float32s()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
