package gputest

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Special are numbers at which conversions and functions change their ways.
var Special = []float32{0, float32(math.Copysign(0, -1)), 1, -1, -0.5, 0.5, 1.5, 2.5, -2.5, 127.5, 128, 255.5, 256, -128.5, -129, 32767.5, 65535.5, 65504, 65519, 65520,
	1e-8, 6e-8, 3e-8, -6.1e-5, 1e-45, -1e-40, 1.1754943e-38, 1e38, -1e38, 3.4e38, 2147483520, 2147483648, -2147483648, 4294967040, 4294967296,
	9.2233715e18, 9.223372e18, 1.8446743e19, 1.8446744e19, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}

// drawn returns special numbers followed by many random ones.
func drawn(n int) []float32 {
	r, x := rand.New(rand.NewPCG(1, 2)), append([]float32(nil), Special...)
	for len(x) < n {
		x = append(x, math.Float32frombits(r.Uint32()), float32(r.NormFloat64()*300))
	}
	return x
}

// Casts checks that casts match package tensor bit for bit, for all codes of up to 16 bits, special numbers and many
// random ones.
func Casts(t *testing.T, dev backend.Device) {
	x := drawn(1 << 13)
	for _, d := range []tensor.DType{tensor.Bool, tensor.U8, tensor.I8, tensor.U16, tensor.I16, tensor.U32, tensor.I32, tensor.U64, tensor.I64,
		tensor.BF16, tensor.F16, tensor.F64, tensor.F8E5M2, tensor.F8E4M3} {
		t.Run(d.String(), func(t *testing.T) {
			want := make([]byte, d.Bytes(len(x)))
			require.NoError(t, tensor.FromFloat32(want, x, d))
			require.Equal(t, want, cast(t, dev, &tensor.Tensor{DType: tensor.F32, Shape: []int{len(x)}, Data: tensor.BytesOf(x)}, d))

			raw := codes(d)
			n := len(raw) / d.Size()
			wide := make([]float32, n)
			require.NoError(t, tensor.ToFloat32(wide, raw, d))
			in := &tensor.Tensor{DType: d, Shape: []int{n}, Data: raw}
			results := [][]byte{cast(t, dev, in, tensor.F32)}
			few := min(n, 64)
			require.Equal(t, results[0][:4*few], cast(t, dev, &tensor.Tensor{DType: d, Shape: []int{few}, Data: raw[:few*d.Size()]}, tensor.F32), "of few of them")
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

// codes returns all codes of a type of up to 16 bits. For wider types it returns noise, and doubles at the limits of
// 32-bit types and halfway between their values.
func codes(d tensor.DType) (raw []byte) {
	switch {
	case d == tensor.Bool:
		return []byte{0, 1, 1, 0}
	case d.Size() == 1:
		for c := range 1 << 8 {
			raw = append(raw, byte(c))
		}
	case d.Size() == 2:
		for c := range 1 << 16 {
			raw = binary.LittleEndian.AppendUint16(raw, uint16(c))
		}
	default:
		raw = Noise(1<<13*d.Size(), 7)
	}
	if d != tensor.F64 {
		return raw
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 1 << 12 {
		for _, exponent := range []uint64{870 + r.Uint64N(30), 1145 + r.Uint64N(10), 1023} {
			bits := r.Uint64()&^(0x7ff<<52) | exponent<<52
			raw = binary.LittleEndian.AppendUint64(raw, bits)
			raw = binary.LittleEndian.AppendUint64(raw, bits&^(1<<29-1)|1<<28) // halfway between two
		}
	}
	return raw
}

// cast converts a tensor on the device.
func cast(t *testing.T, dev backend.Device, x *tensor.Tensor, to tensor.DType) []byte {
	t.Helper()
	return Eval(t, dev, x, func(_ *graph.Graph, x graph.Tensor) graph.Tensor { return x.Cast(to) })
}

// gather returns all elements of x, read as the rows of a table.
func gather(t *testing.T, dev backend.Device, x *tensor.Tensor) []byte {
	t.Helper()
	n := ir.Static(x.Shape[0])
	return Eval(t, dev, &tensor.Tensor{DType: x.DType, Shape: []int{x.Shape[0], 1}, Data: x.Data}, func(g *graph.Graph, x graph.Tensor) graph.Tensor {
		return x.Gather(g.Of(g.IR().Iota(0, ir.Shape{n})))
	})
}

// Eval applies f to a tensor on the device and returns the result.
func Eval(t *testing.T, dev backend.Device, x *tensor.Tensor, f func(g *graph.Graph, x graph.Tensor) graph.Tensor) []byte {
	t.Helper()
	g := graph.New()
	dims := make([]ir.Dim, len(x.Shape))
	for i, n := range x.Shape {
		dims[i] = ir.Static(n)
	}
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{f(g, g.Param("x", x.DType, dims...))}, map[string]*tensor.Tensor{"x": x}, nil)
	require.NoError(t, err)
	return out[0].Data
}

// ScatterOrder: rows that are added to one row are added in their order.
func ScatterOrder(t *testing.T, dev backend.Device) {
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
