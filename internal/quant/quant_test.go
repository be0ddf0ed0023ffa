package quant_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

var types = []tensor.DType{tensor.Q8, tensor.NF4, tensor.FP4}

var numbers = rapid.SliceOfN(rapid.OneOf(
	rapid.Float32Range(-1, 1), rapid.Float32Range(-1e-3, 1e-3), rapid.Float32Range(-1e38, 1e38),
	rapid.SampledFrom([]float32{0, 1, -1, 0.5, 1e-45, -1e-40, 1e-38, 3e38}),
), 1, 300)

// Every code is the nearest one, up to rounding.
func TestQuantizeIsNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := numbers.Draw(t, "x")
		for _, d := range types {
			dst, got := make([]byte, d.Bytes(len(x))), make([]float32, len(x))
			require.NoError(t, quant.Quantize(dst, x, d))
			require.NoError(t, quant.Dequantize(got, dst, 0, d))
			for i, v := range x {
				b := x[i/64*64 : min(len(x), i/64*64+64)]
				most := max(-float64(slices.Min(b)), float64(slices.Max(b)))
				best := math.Inf(1)
				for _, c := range book(d) {
					best = min(best, math.Abs(float64(v)-c*most))
				}
				// Numbers far below 1 are rounded to multiples of the smallest
				// float; bitsandbytes takes a magnitude below 1e-38 for that.
				slack := 1e-5*most + 1e-43
				if d != tensor.Q8 && most < 1e-38 {
					slack = 1e-38
				}
				require.LessOrEqual(t, math.Abs(float64(v)-float64(got[i])), best+slack, "%v: element %d of %v became %v", d, i, v, got[i])
			}
		}
	})
}

// book lists the numbers of a type, in parts of the largest of a block.
func book(d tensor.DType) (numbers []float64) {
	if d == tensor.Q8 {
		for i := -127; i <= 127; i++ {
			numbers = append(numbers, float64(i)/127)
		}
		return numbers
	}
	for _, c := range quant.Code(d) {
		numbers = append(numbers, float64(c))
	}
	return numbers
}

// Any stretch of elements is that of the whole.
func TestDequantizeStretches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := numbers.Draw(t, "x")
		from := rapid.IntRange(0, len(x)).Draw(t, "from")
		to := rapid.IntRange(from, len(x)).Draw(t, "to")
		for _, d := range types {
			dst, whole, some := make([]byte, d.Bytes(len(x))), make([]float32, len(x)), make([]float32, to-from)
			require.NoError(t, quant.Quantize(dst, x, d))
			require.NoError(t, quant.Dequantize(whole, dst, 0, d))
			require.NoError(t, quant.Dequantize(some, dst, from, d))
			require.Equal(t, whole[from:to], some)
		}
	})
}

func TestQ8KeepsItsMultiples(t *testing.T) {
	x := make([]float32, 256)
	for i := range x {
		x[i] = float32(min(i, 254)-127) / 8
		if i%64 == 0 {
			x[i] = 127.0 / 8
		}
	}
	dst, got := make([]byte, tensor.Q8.Bytes(len(x))), make([]float32, len(x))
	require.NoError(t, quant.Quantize(dst, x, tensor.Q8))
	require.NoError(t, quant.Dequantize(got, dst, 0, tensor.Q8))
	require.Equal(t, x, got)
}

func TestErrors(t *testing.T) {
	x := make([]float32, 70)
	require.ErrorIs(t, quant.Quantize(make([]byte, 280), x, tensor.F32), quant.ErrDType)
	require.ErrorIs(t, quant.Quantize(make([]byte, 135), x, tensor.Q8), quant.ErrLength)
	require.ErrorIs(t, quant.Dequantize(x, make([]byte, 280), 0, tensor.F32), quant.ErrDType)
	require.ErrorIs(t, quant.Dequantize(x, make([]byte, 135), 0, tensor.Q8), quant.ErrLength)
	require.ErrorIs(t, quant.Dequantize(x, make([]byte, 136), 60, tensor.Q8), quant.ErrLength)
	require.ErrorIs(t, quant.Dequantize(x, make([]byte, 136), -1, tensor.Q8), quant.ErrLength)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		x[66] = bad
		for _, d := range types {
			err := quant.Quantize(make([]byte, d.Bytes(len(x))), x, d)
			require.ErrorIs(t, err, quant.ErrNotFinite)
			require.ErrorContains(t, err, "element 66 is")
		}
	}
}

func TestParseMethod(t *testing.T) {
	for name, want := range map[string]tensor.DType{"": tensor.Invalid, "none": tensor.Invalid, "int8": tensor.Q8, "nf4": tensor.NF4, "fp8": tensor.F8E4M3} {
		m, err := quant.ParseMethod(name)
		require.NoError(t, err)
		require.Equal(t, want, m.DType())
	}
	require.Equal(t, "int8 nf4 fp4 fp8", quant.Name(tensor.Q8)+" "+quant.Name(tensor.NF4)+" "+quant.Name(tensor.FP4)+" "+quant.Name(tensor.F8E4M3))
	_, err := quant.ParseMethod("in8")
	require.ErrorIs(t, err, quant.ErrMethod)
	require.ErrorContains(t, err, `found "in8", expected none, int8, nf4 or fp8, did you mean "int8"?`)
}

func BenchmarkQuantize(b *testing.B) {
	x := make([]float32, 1<<20)
	for i := range x {
		x[i] = float32(math.Sin(float64(i)))
	}
	for _, d := range types[:2] {
		dst := make([]byte, d.Bytes(len(x)))
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(4 << 20)
			for b.Loop() {
				if err := quant.Quantize(dst, x, d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
