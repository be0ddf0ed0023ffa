//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

func TestCasts(t *testing.T) { gputest.Casts(t, opened(t, backend.Options{})) }

// Functions are near those of package math, in units of the last place. Numbers below
// the smallest normal one may be zeros.
func TestFunctions(t *testing.T) {
	dev := opened(t, backend.Options{})
	x := append([]float32(nil), gputest.Special...)
	r := rand.New(rand.NewPCG(5, 6))
	for _, most := range []float64{1e-6, 1e-3, 0.92, 4, 10, 20, 90} {
		for range 1000 {
			x = append(x, float32((2*r.Float64()-1)*most))
		}
	}
	in := &tensor.Tensor{DType: tensor.F32, Shape: []int{len(x)}, Data: tensor.BytesOf(x)}
	for fn, c := range map[ir.UnaryFn]struct {
		f    func(float64) float64
		most float64 // units
	}{
		ir.Exp: {math.Exp, 4}, ir.Log: {math.Log, 4}, ir.Sqrt: {math.Sqrt, 0.5}, ir.Rsqrt: {func(x float64) float64 { return 1 / math.Sqrt(x) }, 2},
		ir.Tanh: {math.Tanh, 5}, ir.Sigmoid: {func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 5}, ir.Erf: {math.Erf, 2},
		ir.Sin: {math.Sin, 4}, ir.Cos: {math.Cos, 4}, ir.Abs: {math.Abs, 0}, ir.Neg: {func(x float64) float64 { return -x }, 0},
	} {
		t.Run(fn.String(), func(t *testing.T) {
			got := gputest.Eval(t, dev, in, func(g *graph.Graph, x graph.Tensor) graph.Tensor { return g.Of(g.IR().Unary(fn, x.Value())) })
			for i, v := range x {
				y, want := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])), c.f(float64(v))
				switch {
				case want != want:
					require.True(t, y != y, "of %v is %v, expected NaN", v, y)
				case math.Abs(want) > math.MaxFloat32 || math.IsInf(want, 0):
					require.Equal(t, float32(want), y, "of %v", v)
				default:
					_, e := math.Frexp(want)
					unit := math.Max(math.Ldexp(1, -126), math.Ldexp(1, e-24))
					require.LessOrEqual(t, math.Abs(float64(y)-want), (c.most+0.001)*unit, "of %v is %v, expected %v", v, y, want)
				}
			}
		})
	}
}

func TestScatterOrder(t *testing.T) { gputest.ScatterOrder(t, opened(t, backend.Options{})) }

// The device makes the blocks that package quant makes, byte for byte, and finds the
// numbers that no block can hold.
func TestQuantize(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, from := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		for _, to := range []tensor.DType{tensor.Q8, tensor.NF4} {
			t.Run(from.String()+" "+to.String(), func(t *testing.T) {
				values := quantizable(64*40 + 37)
				raw := make([]byte, from.Bytes(len(values)))
				require.NoError(t, tensor.FromFloat32(raw, values, from))
				require.NoError(t, tensor.ToFloat32(values, raw, from))
				want := make([]byte, to.Bytes(len(values)))
				require.NoError(t, quant.Quantize(want, values, to))
				got, report := dev.Quantize(t, raw, len(values), from, to)
				require.Zero(t, report)
				require.Equal(t, want, got)

				values[64*5+3] = float32(math.NaN())
				require.NoError(t, tensor.FromFloat32(raw, values, from))
				_, report = dev.Quantize(t, raw, len(values), from, to)
				require.Equal(t, [3]int64{7, 5, 0}, report)
			})
		}
	}
}

// quantizable are numbers whose blocks are of all magnitudes, of zeros and of numbers
// halfway between two codes: multiplied by 127/m, as doubles are, where that is no number.
func quantizable(n int) []float32 {
	r, x := rand.New(rand.NewPCG(8, 9)), make([]float32, n)
	for i := range x {
		switch b := i / 64; {
		case b == 1:
		case b%3 == 0:
			m := float32(b/3*2 + 1)
			if x[i] = 127 * m; i%64 > 0 {
				x[i] = (float32(r.IntN(254)-127) + 0.5) * m
			}
		case b%5 == 1:
			x[i] = float32(r.NormFloat64() * 1e-40)
		default:
			x[i] = float32(r.NormFloat64() * math.Ldexp(1, b-30))
		}
	}
	return x
}

// TestTogether checks sums of products that share a launch, in both precisions.
func TestTogether(t *testing.T) {
	for _, p := range precisions {
		gputest.Together(t, openedFor(t, p))
	}
}

// TestThresholds checks each variant of a kernel where usually another one is launched.
func TestThresholds(t *testing.T) {
	gputest.Thresholds(t, opened(t, backend.Options{Precision: backend.BF16}))
}
