package gemm_test

import (
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// matrix is a test operand: its memory, the Matrix over it and its values.
type matrix struct {
	gemm.Matrix
	rows, cols int // of op(M)
	f32        []float32
	f16        []uint16
}

// newMatrix makes op(M) [rows,cols] of random values in (-1,1), with rows of
// M that are pad elements longer than needed; what lies between is NaN.
func newMatrix(r *rand.Rand, rows, cols int, elem gemm.Elem, trans bool, pad int) *matrix {
	m := &matrix{rows: rows, cols: cols}
	mr, mc := rows, cols
	if trans {
		mr, mc = cols, rows
	}
	m.Matrix = gemm.Matrix{Elem: elem, Stride: mc + pad, Trans: trans}
	size := mr * (mc + pad)
	if elem == gemm.F32 {
		m.f32 = make([]float32, size+1)
		m.Data = unsafe.Pointer(&m.f32[0])
	} else {
		m.f16 = make([]uint16, size+1)
		m.Data = unsafe.Pointer(&m.f16[0])
	}
	for i := range size + 1 {
		v := float32(r.NormFloat64() / 2)
		if i >= size || i%(mc+pad) >= mc {
			v = float32(math.NaN())
		}
		m.set(i, v)
	}
	return m
}

// index is the place of op(M)[i,j] in memory.
func (m *matrix) index(i, j int) int {
	if m.Trans {
		i, j = j, i
	}
	return i*m.Stride + j
}

func (m *matrix) set(i int, v float32) {
	switch m.Elem {
	case gemm.F32:
		m.f32[i] = v
	case gemm.BF16:
		m.f16[i] = toBF16(v)
	case gemm.F16:
		m.f16[i] = toF16(v)
	}
}

// at is op(M)[i,j].
func (m *matrix) at(i, j int) float64 {
	x := m.index(i, j)
	switch m.Elem {
	case gemm.BF16:
		return float64(math.Float32frombits(uint32(m.f16[x]) << 16))
	case gemm.F16:
		return fromF16(m.f16[x])
	}
	return float64(m.f32[x])
}

// fromF16 is the definition of the format.
func fromF16(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exp, frac := int(h>>10&31), float64(h&1023)
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// toF16 and toBF16 truncate: the tests need values, not good ones.
func toF16(v float32) uint16 {
	switch f := math.Float32bits(v); {
	case v != v:
		return 0x7e00
	case math.Abs(float64(v)) < 0x1p-14:
		return uint16(f>>31)<<15 | uint16(math.Abs(float64(v))*0x1p24)
	default:
		return uint16(f>>31)<<15 | uint16((f&0x7fffffff-112<<23)>>13)
	}
}

func toBF16(v float32) uint16 { return uint16(math.Float32bits(v) >> 16) }

// problem is a call with what its result is compared to.
type problem struct {
	call   gemm.Call
	pairs  []gemm.Pair
	a, b   []*matrix
	before []float32
}

// reference computes element [i,j] in float64, and the sum of the absolute
// terms, to which rounding errors are proportional.
func (p *problem) reference(i, j int) (sum, size float64) {
	add := func(v float64) { sum += v; size += math.Abs(v) }
	if p.call.Accumulate {
		add(float64(p.before[i*p.call.LDC+j]))
	}
	if p.call.Bias != nil {
		add(float64(p.call.Bias[j]))
	}
	for x, pair := range p.pairs {
		if pair.Alpha == 0 {
			continue
		}
		for k := range pair.K {
			add(float64(pair.Alpha) * p.a[x].at(i, k) * p.b[x].at(k, j))
		}
	}
	return sum, size
}
