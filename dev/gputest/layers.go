package gputest

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Rows runs kernels on rows of awkward lengths: for a warp, a block and a large block, with and without 16-byte
// accesses.
func Rows(t *testing.T, dev backend.Device) {
	for _, d := range []int{1, 3, 31, 128, 1000, 1023, 1024, 1025, 1028, 4099, 8200} {
		v := newValues(uint64(d))
		apply := func(op ir.Op, attr any, in ...graph.Tensor) graph.Tensor {
			ids := make([]ir.Value, len(in))
			for i, x := range in {
				ids[i] = x.Value()
			}
			return v.g.Of(v.g.IR().Apply(op, attr, ids...))
		}
		x, dy, w := v.floats(tensor.F32, 1, 3, d), v.floats(tensor.F32, 1, 3, d), v.floats(tensor.F32, 1, d)
		bias := v.floats(tensor.F32, 1, d)
		labels, dloss := v.labels(3, d), v.g.Const(0.25)
		v.check(t, dev, 3e-6,
			x.RMSNorm(w, 1e-6), apply(ir.RMSNormGrad, ir.NormAttr{Eps: 0.1}, dy, x, w), x.Scale(4).Softmax(),
			apply(ir.CrossEntropy, nil, x, labels), apply(ir.CrossEntropyGrad, nil, x, labels, dloss),
			apply(ir.LayerNorm, ir.LayerNormAttr{Eps: 0.1}, x), apply(ir.LayerNorm, ir.LayerNormAttr{Eps: 0.1, HasWeight: true, HasBias: true}, x, w, bias),
			apply(ir.LayerNormGrad, ir.LayerNormAttr{Eps: 0.1}, dy, x), apply(ir.LayerNormGrad, ir.LayerNormAttr{Eps: 0.1, HasWeight: true}, dy, x, w),
			x.GLU(dy, ir.GELU), x.GLU(dy, ir.GELUTanh), x.GLU(dy, ir.SiLU), x.SumSquares())
		// The mean is far larger than the deviation: squares must not cancel.
		far := v.g.Of(v.g.IR().AddScalar(x.Value(), 1000))
		v.check(t, dev, 5e-4, apply(ir.LayerNorm, ir.LayerNormAttr{Eps: 0.1}, far), apply(ir.LayerNormGrad, ir.LayerNormAttr{Eps: 0.1}, dy, far))
	}
}

// Images checks convolutions with precision bf16, in small tiles and in large ones, and of images that are stored as
// bf16.
func Images(t *testing.T, dev backend.Device) {
	for _, size := range [][3]int{{120, 130, 4}, {9, 11, 40}, {10, 7, 3}} {
		v := newValues(7)
		x, w, bias := v.floats(tensor.F32, 1, 1, size[0], size[1], size[2]), v.floats(tensor.BF16, 1, 66, 3, 3, size[2]), v.floats(tensor.F32, 1, 66)
		a := ir.Conv2DAttr{Stride: 1, Top: 1, Left: 1, Bottom: 1, Right: 1}
		v.check(t, dev, 0.03, v.g.Of(v.g.IR().Conv2D(x.Value(), w.Value(), bias.Value(), a)))
	}
	for _, size := range [][3]int{{120, 130, 72}, {12, 9, 66}, {8, 7, 40}, {8, 7, 13}} {
		v, channels := newValues(8), size[2]
		x, w := v.floats(tensor.F32, 1, 1, size[0], size[1], 2), v.floats(tensor.BF16, 0.3, channels, 2, 3, 2)
		y := x.Conv2D(w, v.floats(tensor.F32, 1, channels), ir.Conv2DAttr{Stride: 1, Top: 1, Left: 1, Right: 1})
		y = y.GroupNorm(v.floats(tensor.F32, 1, channels), v.floats(tensor.F32, 1, channels), 1, 1e-6).Activate(ir.SiLU)
		v.checkStored(t, dev, 0.03, y.Conv2D(v.floats(tensor.BF16, 0.3, 66, 1, 1, channels), v.floats(tensor.F32, 1, 66), ir.Conv2DAttr{Stride: 1}), ir.Conv2D, ir.GroupNorm, ir.Activate)
	}
}

// Sums checks that sums of squares keep small terms next to a large square, as sums in double do, and overflow to
// infinity.
func Sums(t *testing.T, dev backend.Device) {
	const n = 300_000
	x := make([]float32, n)
	for i := range x {
		x[i] = 0.5
	}
	x[0] = 1 << 20
	sum := func(x []float32) float32 {
		g := graph.New()
		out, err := graph.Eval(context.Background(), dev, []graph.Tensor{g.Floats(x, len(x)).SumSquares()}, nil, nil)
		require.NoError(t, err)
		f, err := out[0].Float32s()
		require.NoError(t, err)
		return f[0]
	}
	require.Equal(t, float32(1<<40+(n-1)*0.25), sum(x))
	require.Equal(t, float32(1<<40+4095*0.25), sum(x[:4096]))
	x[n-1] = 1e30
	require.Equal(t, float32(math.Inf(1)), sum(x))
	require.Equal(t, float32(math.Inf(1)), sum(x[n-5:]))
}

// ExactBits checks that dropout masks and rotary tables equal the CPU's bit for bit, at positions up to two thousand
// million, where the angle has made many turns.
func ExactBits(t *testing.T, dev backend.Device) {
	host, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer host.Close()
	v := newValues(5)
	key := v.words(tensor.U32, 0x11223344, 0x99aabbcc, 7)
	positions := v.words(tensor.I32, 0, 1, 2, 17, 4095, 131071, 999_999, 1_048_577, 2_000_000_000)
	h := 33
	frequencies := v.floats(tensor.F32, 1, h)
	for i := range h {
		f := float32(math.Pow(10000, -float64(i)/float64(h)))
		binary.LittleEndian.PutUint32(v.args["in2"].Data[4*i:], math.Float32bits(f))
	}
	var outs []graph.Tensor
	for _, n := range []int{1, 5, 4096, 4099} {
		x := v.floats(tensor.F32, 1, n)
		outs = append(outs, v.g.Of(v.g.IR().Dropout(x.Value(), key.Value(), ir.DropoutAttr{P: 0.3, Stream: 1 << 31})))
	}
	outs = append(outs, v.g.Of(v.g.IR().RoPETable(positions.Value(), frequencies.Value(), 1.25)))
	require.Equal(t, v.on(t, host, outs), v.on(t, dev, outs))
}
