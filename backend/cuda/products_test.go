//go:build cuda && linux

package cuda_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// Sizes that reach every way of kernels/cuda/gemm_mma.cu, gemm_bf16.cu, gemv.cu
// and lora_down.cu, which the table of conformance is too small for: large tiles, the
// k axis in parts, wide loads and none.

// factors is one product of the test: op(A) [m,k] of type a, op(B) [k,n] of b.
type factors struct {
	k      int
	a, b   tensor.DType
	ta, tb bool
	alpha  float32
}

var productCases = []struct {
	name        string
	m, n, batch int // batch 0: matrices
	ps          []factors
	bias, c     bool
}{
	{"large tiles, linear with adapter", 1153, 1412, 0, []factors{{72, tensor.F32, tensor.BF16, false, true, 1}, {16, tensor.F32, tensor.F32, false, true, 0.5}}, true, false},
	{"large tiles, backward with adapter", 1153, 1411, 0, []factors{{40, tensor.F32, tensor.BF16, false, false, 1}, {5, tensor.F32, tensor.F32, false, false, 2}}, false, true},
	{"large tiles, transposed", 1160, 1408, 0, []factors{{33, tensor.F16, tensor.Q8, true, false, -1}, {64, tensor.BF16, tensor.NF4, true, true, 0.25}}, false, false},
	{"bfloat16, linear with adapter", 1153, 2824, 0, []factors{{120, tensor.F32, tensor.BF16, false, true, 1}, {16, tensor.F32, tensor.F32, false, true, 0.5}}, true, false},
	{"bfloat16, backward with adapter", 1153, 2816, 0, []factors{{136, tensor.F32, tensor.NF4, false, false, 1}, {8, tensor.F32, tensor.F16, false, false, 2}}, false, true},
	{"bfloat16, small tiles", 1160, 1408, 0, []factors{{128, tensor.BF16, tensor.Q8, false, true, -1}, {64, tensor.F16, tensor.FP4, false, true, 0.25}}, false, false},
	{"bfloat16, small tiles backward", 1153, 1416, 0, []factors{{264, tensor.F32, tensor.BF16, false, false, 1}, {8, tensor.F32, tensor.F16, false, false, 2}, {8, tensor.F32, tensor.F32, false, false, 2}}, true, true},
	{"bfloat16, backward of three linears with adapters", 1153, 2816, 0, []factors{{136, tensor.F32, tensor.BF16, false, false, 1}, {16, tensor.F32, tensor.F32, false, false, 0.5}, {64, tensor.BF16, tensor.BF16, false, false, 1}, {24, tensor.F32, tensor.F32, false, false, 2}, {72, tensor.F32, tensor.BF16, false, false, 0.25}, {32, tensor.F32, tensor.F32, false, false, 1}}, false, true},
	{"parts, gradient of an adapter", 16, 130, 0, []factors{{1500, tensor.F32, tensor.F32, true, false, 1.5}}, false, false},
	{"parts, linear with adapter", 20, 41, 0, []factors{{600, tensor.F32, tensor.F16, false, true, 1}, {40, tensor.F32, tensor.F32, false, true, -3}}, true, true},
	{"parts, batch", 10, 20, 3, []factors{{700, tensor.F32, tensor.F32, false, false, 1}}, true, true},
	{"parts of a part", 3, 9, 2, []factors{{531, tensor.BF16, tensor.F16, true, true, -0.5}}, false, true},
	{"parts, quantised", 70, 66, 0, []factors{{640, tensor.F32, tensor.FP4, false, true, 1}, {576, tensor.F32, tensor.Q8, false, true, 1}}, false, false},
	{"one row", 1, 43, 0, []factors{{1032, tensor.F32, tensor.BF16, false, true, 1}, {16, tensor.F32, tensor.F32, false, true, 0.5}}, true, true},
	{"two rows", 2, 9, 0, []factors{{1288, tensor.F32, tensor.F16, false, true, 1}, {13, tensor.F16, tensor.BF16, false, true, 2}}, false, true},
	{"three rows", 3, 6, 0, []factors{{1088, tensor.F32, tensor.Q8, false, true, 1}, {1600, tensor.F32, tensor.NF4, false, true, -1}}, false, false},
	{"nine rows, thin", 9, 41, 0, []factors{{768, tensor.F32, tensor.BF16, false, true, 1}}, false, false},
	{"batch of rows, thin, parts", 20, 130, 0, []factors{{1280, tensor.F32, tensor.BF16, false, true, -0.5}}, true, true},
	{"large batch of rows, thin, parts", 57, 64, 0, []factors{{2560, tensor.F32, tensor.BF16, false, true, 1}}, true, false},
	{"eight rows", 8, 5, 0, []factors{{704, tensor.F32, tensor.FP4, false, true, 1}, {257, tensor.F32, tensor.Q8, false, true, 1}, {129, tensor.BF16, tensor.NF4, false, true, 1}}, true, false},
}

// Each variant of a kernel computes what the others do.
func TestThresholds(t *testing.T) {
	dev := opened(t, backend.Options{Precision: backend.BF16})
	gputest.Thresholds(t, dev)
	for _, name := range []string{"gemv_4", "gemm_thin_64", "gemm_mma_64", "gemm_mma_128", "gemm_bf16_nt_128", "gemm_bf16_nt_256", "gemm_narrow_down_32", "attention_queries_32", "attention_decode_32_2"} {
		require.Contains(t, dev.Kernels(), name)
	}
}

// matrix makes a matrix of a type out of numbers that bfloat16 holds.
func matrix(t *testing.T, rng *rand.Rand, d tensor.DType, shape ...int) *tensor.Tensor {
	t.Helper()
	n := 1
	for _, s := range shape {
		n *= s
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.IntN(255)-127) / 64
	}
	data := make([]byte, d.Bytes(n))
	if d.Quantized() {
		require.NoError(t, quant.Quantize(data, x, d))
	} else {
		require.NoError(t, tensor.FromFloat32(data, x, d))
	}
	return &tensor.Tensor{DType: d, Shape: shape, Data: data}
}

// operand are the elements of a matrix, rounded to bfloat16 if asked for.
func operand(t *testing.T, x *tensor.Tensor, rounded bool) []float64 {
	t.Helper()
	n := 1
	for _, s := range x.Shape {
		n *= s
	}
	f := make([]float32, n)
	if x.DType.Quantized() {
		require.NoError(t, quant.Dequantize(f, x.Data, 0, x.DType))
	} else {
		var err error
		f, err = x.Float32s()
		require.NoError(t, err)
	}
	out := make([]float64, n)
	for i, v := range f {
		if rounded {
			v = tensor.BF16ToFloat32(tensor.Float32ToBF16(v))
		}
		out[i] = float64(v)
	}
	return out
}

func TestProducts(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		for _, c := range productCases {
			if precision == backend.F32 && c.m > 1000 {
				continue // there are no large tiles of float32
			}
			t.Run(precision.String()+"/"+c.name, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				g, args := graph.New(), map[string]*tensor.Tensor{}
				param := func(name string, d tensor.DType, shape ...int) graph.Tensor {
					args[name] = matrix(t, rng, d, shape...)
					dims := make([]ir.Dim, len(shape))
					for i, s := range shape {
						dims[i] = ir.Static(s)
					}
					return g.Param(name, d, dims...)
				}
				shape := func(rows, cols int, turned bool) []int {
					s := []int{rows, cols}
					if turned {
						s = []int{cols, rows}
					}
					if c.batch > 0 {
						s = append([]int{c.batch}, s...)
					}
					return s
				}
				matrices := max(c.batch, 1)
				want := make([]float64, matrices*c.m*c.n)
				var bias, addend ir.Value
				if c.bias {
					bias = param("bias", tensor.F32, c.n).Value()
					for i, b := range numbersOfRows(t, args["bias"], len(want)) {
						want[i] += b
					}
				}
				if c.c {
					addend = param("c", tensor.F32, shape(c.m, c.n, false)...).Value()
					for i, v := range operand(t, args["c"], false) {
						want[i] += v
					}
				}
				var ps []ir.Product
				rounded := precision == backend.BF16 && c.m > 8
				for i, p := range c.ps {
					a, b := string(rune('A'+2*i)), string(rune('B'+2*i))
					x, y := param(a, p.a, shape(c.m, p.k, p.ta)...), param(b, p.b, shape(p.k, c.n, p.tb)...)
					ps = append(ps, ir.Product{A: x.Value(), B: y.Value(), TA: p.ta, TB: p.tb, Alpha: p.alpha})
					accumulate(want, operand(t, args[a], rounded), operand(t, args[b], rounded), matrices, c.m, c.n, p)
				}
				out, err := graph.Eval(context.Background(), dev, []graph.Tensor{g.Of(g.IR().Gemm(ps, bias, addend))}, args, nil)
				require.NoError(t, err)
				requireClose(t, want, out[0])
			})
		}
	}
}

func numbersOfRows(t *testing.T, row *tensor.Tensor, n int) []float64 {
	r := operand(t, row, false)
	out := make([]float64, n)
	for i := range out {
		out[i] = r[i%len(r)]
	}
	return out
}

func accumulate(want, a, b []float64, batch, m, n int, p factors) {
	at := func(x []float64, z, rows, cols, i, j int, turned bool) float64 {
		if turned {
			i, j, rows, cols = j, i, cols, rows
		}
		return x[(z*rows+i)*cols+j]
	}
	row := make([]float64, n)
	for z := range batch {
		for i := range m {
			clear(row)
			for l := range p.k {
				v := float64(p.alpha) * at(a, z, m, p.k, i, l, p.ta)
				for j := range row {
					row[j] += v * at(b, z, p.k, n, l, j, p.tb)
				}
			}
			for j, v := range row {
				want[(z*m+i)*n+j] += v
			}
		}
	}
}

// requireClose allows what sums in float32 cost.
func requireClose(t *testing.T, want []float64, got *tensor.Tensor) {
	t.Helper()
	f, err := got.Float32s()
	require.NoError(t, err)
	require.Len(t, f, len(want))
	most := 0.0
	for _, v := range want {
		most = max(most, math.Abs(v))
	}
	for i, v := range want {
		if d := math.Abs(float64(f[i]) - v); !(d <= 4e-6*most) {
			t.Fatalf("element %d is %v, expected %v within %g", i, f[i], v, 4e-6*most)
		}
	}
}

// TestLoRADown compares with masks of package philox, which must be the same bit
// for bit: an element that is dropped wrongly is far off.
func TestLoRADown(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		for _, c := range []struct {
			rows, width, rank int
			weight            tensor.DType
		}{{100, 1100, 5, tensor.F32}, {70, 603, 16, tensor.BF16}, {33, 90, 40, tensor.F16}, {900, 66, 70, tensor.F32}} {
			rng := rand.New(rand.NewPCG(3, 4))
			const seed, step, stream, p = 0x1234567890, 77, 5, 0.5
			x, a := matrix(t, rng, tensor.F32, c.rows, c.width), matrix(t, rng, c.weight, c.rank, c.width)
			dh := matrix(t, rng, tensor.F32, c.rows, c.rank)
			key := &tensor.Tensor{DType: tensor.U32, Shape: []int{3}, Data: []byte{0x90, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, step, 0, 0, 0}}
			g := graph.New()
			s := ir.Static
			xs, as, ds := g.Param("x", tensor.F32, s(c.rows), s(c.width)), g.Param("a", c.weight, s(c.rank), s(c.width)), g.Param("dh", tensor.F32, s(c.rows), s(c.rank))
			ks := g.Of(g.IR().Param("key", ir.RandomKey))
			d := ir.DropoutAttr{P: p, Stream: stream}
			out, err := graph.Eval(context.Background(), dev, []graph.Tensor{
				g.Of(g.IR().Apply(ir.LoRADown, d, xs.Value(), as.Value(), ks.Value())),
				g.Of(g.IR().Apply(ir.LoRADownGrad, d, ds.Value(), xs.Value(), ks.Value())),
			}, map[string]*tensor.Tensor{"x": x, "a": a, "dh": dh, "key": key}, nil)
			require.NoError(t, err)

			kept := operand(t, x, false)
			mask := philox.NewMask(seed, step, stream, p)
			for i := range kept {
				kept[i] *= 2
				if !mask.Keep(uint64(i)) {
					kept[i] = 0
				}
			}
			h, da := make([]float64, c.rows*c.rank), make([]float64, c.rank*c.width)
			accumulate(h, kept, operand(t, a, false), 1, c.rows, c.rank, factors{k: c.width, tb: true, alpha: 1})
			accumulate(da, operand(t, dh, false), kept, 1, c.rank, c.width, factors{k: c.rows, ta: true, alpha: 1})
			requireClose(t, h, out[0])
			requireClose(t, da, out[1])
		}
	}
}
