package conformance

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// fill returns the elements of an input.
type fill func(r *rand.Rand, shape []int) []float64

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func each(shape []int, f func() float64) []float64 {
	x := make([]float64, size(shape))
	for i := range x {
		x[i] = f()
	}
	return x
}

// normal returns numbers with mean 0 and standard deviation 1.
func normal(r *rand.Rand, shape []int) []float64 { return each(shape, r.NormFloat64) }

// tiny returns normal numbers times 2^-70.
func tiny(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return math.Ldexp(r.NormFloat64(), -70) })
}

// positive returns numbers in [0.5, 2).
func positive(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return 0.5 + 1.5*r.Float64() })
}

// wide returns numbers of many magnitudes and both signs.
func wide(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return r.NormFloat64() * math.Exp(4*r.NormFloat64()) })
}

// apart returns distinct numbers in random order, at least 0.1 from each other and from zero, so that a small step
// never changes their order.
func apart(r *rand.Rand, shape []int) []float64 {
	x := make([]float64, size(shape))
	for i, p := range r.Perm(len(x)) {
		x[i] = 0.1*(float64(p)-float64(len(x)/2)) + 0.05
	}
	return x
}

// below returns integers from 0 to n-1.
func below(n int) fill {
	return func(r *rand.Rand, shape []int) []float64 {
		return each(shape, func() float64 { return float64(r.IntN(n)) })
	}
}

// labels returns class labels below n; about a third are -100, which means no label.
func labels(n int) fill {
	return func(r *rand.Rand, shape []int) []float64 {
		return each(shape, func() float64 {
			if r.IntN(3) == 0 {
				return -100
			}
			return float64(r.IntN(n))
		})
	}
}

// turns returns runs of 1, 2, 3 and more equal numbers, from low to n-1 and again from low.
func turns(n, low int) fill {
	return func(_ *rand.Rand, shape []int) (x []float64) {
		for run := 1; len(x) < size(shape); run++ {
			for range run {
				x = append(x, float64(low+run%(n-low)))
			}
		}
		return x[:size(shape)]
	}
}

// values returns the given numbers.
func values(x ...float64) fill {
	return func(*rand.Rand, []int) []float64 { return x }
}

// words returns random 32-bit words.
func words(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return float64(r.Uint32()) })
}

// bits returns random numbers 0 and 1.
func bits(r *rand.Rand, shape []int) []float64 {
	return each(shape, func() float64 { return float64(r.IntN(2)) })
}

// scaled multiplies the elements of f by c.
func scaled(f fill, c float64) fill {
	return func(r *rand.Rand, shape []int) []float64 {
		x := f(r, shape)
		for i := range x {
			x[i] *= c
		}
		return x
	}
}

// roundTo rounds x in place to values that elements of type d can represent.
func roundTo(d tensor.DType, x []float64) {
	b := encode(d, x)
	if d.Quantized() { // the bytes do not hold the number of elements
		f := make([]float32, len(x))
		if err := quant.Dequantize(f, b, 0, d); err != nil {
			panic(err)
		}
		for i, v := range f {
			x[i] = float64(v)
		}
		return
	}
	copy(x, decode(d, b))
}

// encode encodes x as little-endian elements of type d.
func encode(d tensor.DType, x []float64) []byte {
	b := make([]byte, d.Bytes(len(x)))
	switch d {
	case tensor.I32, tensor.U32:
		for i, v := range x {
			binary.LittleEndian.PutUint32(b[4*i:], uint32(int64(v)))
		}
	case tensor.F64:
		for i, v := range x {
			binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
		}
	case tensor.Bool:
		for i, v := range x {
			b[i] = byte(v)
		}
	default:
		f := make([]float32, len(x))
		for i, v := range x {
			f[i] = float32(v)
		}
		from := tensor.FromFloat32
		if d.Quantized() {
			from = quant.Quantize
		}
		if err := from(b, f, d); err != nil {
			panic(err)
		}
	}
	return b
}

// decode decodes elements of type d.
func decode(d tensor.DType, b []byte) []float64 {
	if d.Size() == 0 {
		return nil
	}
	x := make([]float64, len(b)/d.Size())
	switch d {
	case tensor.I32:
		for i := range x {
			x[i] = float64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	case tensor.U32:
		for i := range x {
			x[i] = float64(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case tensor.F64:
		for i := range x {
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	default:
		f := make([]float32, len(x))
		if err := tensor.ToFloat32(f, b, d); err != nil {
			panic(err)
		}
		for i, v := range f {
			x[i] = float64(v)
		}
	}
	return x
}

// difference returns the largest error of got relative to want, taken as the larger of the element and the root mean
// square of all elements. An infinity or NaN that does not match counts as an infinite error.
func difference(got, want []float64) (worst float64, where int) {
	if len(got) != len(want) {
		return math.Inf(1), 0
	}
	sum, n := 0.0, 0
	for _, w := range want {
		if finite(w) {
			sum += w * w
			n++
		}
	}
	rms := math.Sqrt(sum / float64(max(1, n)))
	for i, w := range want {
		d := 0.0
		switch {
		case finite(w) && finite(got[i]):
			if d = math.Abs(got[i] - w); d > 0 {
				d /= math.Abs(w) + rms
			}
		case math.IsNaN(w) && math.IsNaN(got[i]), w == got[i]:
		default:
			d = math.Inf(1)
		}
		if d > worst {
			worst, where = d, i
		}
	}
	return worst, where
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// hostOf converts the bytes of a result to the form of the reference.
func hostOf(t ir.Type, dims []int, b []byte) *ir.Host {
	return &ir.Host{DType: t.DType, Shape: t.Shape.Resolve(dims), Data: decode(t.DType, b)}
}
