package gemm_test

import (
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// cleaner is what *testing.T and *rapid.T have in common.
type cleaner interface {
	Cleanup(func())
	Fatal(args ...any)
}

// matrix is a test operand: its memory, the Matrix over it and the values of
// op(M), row by row.
type matrix struct {
	gemm.Matrix
	cols   int
	f32    []float32
	f16    []uint16
	values []float64
	exact  bool // bfloat16 holds all values
}

// newMatrix makes op(M) [rows,cols] of random values, with rows of M that are
// pad elements longer than needed, between them NaN. Behind the last element
// lies a page that must not be read.
func newMatrix(t cleaner, r *rand.Rand, rows, cols int, elem gemm.Elem, trans bool, pad int) *matrix {
	m := &matrix{cols: cols, values: make([]float64, rows*cols)}
	exact := r.Uint64()%2 == 0 // every other matrix has values that bfloat16 holds
	m.exact = elem == gemm.BF16 || exact
	mr, mc := rows, cols
	if trans {
		mr, mc = cols, rows
	}
	m.Matrix = gemm.Matrix{Elem: elem, Stride: mc + pad, Trans: trans}
	size := max(0, mr*m.Stride-pad)
	m.Data = guarded(t, size*elem.Size())
	if elem == gemm.F32 {
		m.f32 = unsafe.Slice((*float32)(m.Data), size)
	} else {
		m.f16 = unsafe.Slice((*uint16)(m.Data), size)
	}
	if pad > 0 {
		for i := range size {
			m.set(i, float32(math.NaN()))
		}
	}
	for i := range rows {
		for j := range cols {
			v := float32(r.NormFloat64() / 2)
			if exact {
				v = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
			}
			m.put(i, j, v)
		}
	}
	return m
}

// put sets op(M)[i,j].
func (m *matrix) put(i, j int, v float32) {
	x := i*m.Stride + j
	if m.Trans {
		x = j*m.Stride + i
	}
	m.values[i*m.cols+j] = m.set(x, v)
}

// set stores v, rounded, at place x in memory and returns what it became.
func (m *matrix) set(x int, v float32) float64 {
	switch m.Elem {
	case gemm.BF16:
		m.f16[x] = uint16(math.Float32bits(v) >> 16)
		return float64(math.Float32frombits(uint32(m.f16[x]) << 16))
	case gemm.F16:
		m.f16[x] = toF16(v)
		return fromF16(m.f16[x])
	}
	m.f32[x] = v
	return float64(v)
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

// toF16 truncates: the tests need some value, not the nearest.
func toF16(v float32) uint16 {
	b := math.Float32bits(v)
	sign, mag := uint16(b>>31)<<15, math.Abs(float64(v))
	switch {
	case v != v:
		return 0x7e00
	case mag >= 65536:
		return sign | 0x7c00
	case mag < 0x1p-14:
		return sign | uint16(mag*0x1p24)
	}
	return sign | uint16((b&0x7fffffff-112<<23)>>13)
}

// problem is a call with what its result is compared to.
type problem struct {
	gemm.Call
	a, b   []*matrix
	before []float32

	rounded bool // operands may have been rounded to bfloat16
}

// newProblem is a problem without pairs; C lies like a matrix, pad elements
// between its rows.
func newProblem(r *rand.Rand, m, n, pad int, accumulate, bias bool) *problem {
	p := &problem{Call: gemm.Call{M: m, N: n, LDC: n + pad, Accumulate: accumulate}}
	p.before = make([]float32, max(0, m*p.LDC-pad))
	for i := range p.before {
		p.before[i] = float32(math.NaN()) // must be overwritten, or must not be
		if accumulate && i%p.LDC < n {
			p.before[i] = float32(r.NormFloat64())
		}
	}
	if bias {
		p.Bias = make([]float32, n)
		for i := range p.Bias {
			p.Bias[i] = float32(r.NormFloat64())
		}
	}
	return p
}

// add appends a pair.
func (p *problem) add(a, b *matrix, alpha float32) {
	p.a, p.b = append(p.a, a), append(p.b, b)
	p.Pairs = append(p.Pairs, gemm.Pair{A: a.Matrix, B: b.Matrix, K: a.cols, Alpha: alpha})
}

// compute returns C.
func (p *problem) compute(t cleaner, run func(*gemm.Call)) []float32 {
	c := p.Call
	c.C = unsafe.Slice((*float32)(guarded(t, 4*len(p.before))), len(p.before))
	copy(c.C, p.before)
	run(&c)
	return c.C
}

// reference computes element [i,j] in float64, and the sum of the absolute
// terms, to which rounding errors are proportional.
func (p *problem) reference(i, j int) (sum, size float64) {
	add := func(v float64) { sum += v; size += math.Abs(v) }
	if p.Accumulate {
		add(float64(p.before[i*p.LDC+j]))
	}
	if p.Bias != nil {
		add(float64(p.Bias[j]))
	}
	for x, pair := range p.Pairs {
		if pair.Alpha == 0 {
			continue
		}
		a, b := p.a[x], p.b[x]
		for k := range pair.K {
			add(float64(pair.Alpha) * a.values[i*a.cols+k] * b.values[k*b.cols+j])
		}
	}
	return sum, size
}

// depth is the number of terms of an element.
func (p *problem) depth() int {
	depth := 2
	for _, pair := range p.Pairs {
		depth += pair.K
	}
	return depth
}

// exact reports whether operands are not changed by rounding to bfloat16.
func (p *problem) exact() bool {
	for x, pair := range p.Pairs {
		if a := pair.Alpha; pair.K > 0 && (!p.a[x].exact || !p.b[x].exact || a != 0 && a != 1 && a != 2) {
			return false
		}
	}
	return true
}

// requireRight compares C with the reference, and what lies between its rows
// with what was there.
//
// Rounding errors of a sum of n terms grow as √n if they are of random sign.
// Among all the elements that are drawn some lie four deviations off.
func (p *problem) requireRight(t require.TestingT, c []float32) {
	tol := (8 + math.Sqrt(float64(p.depth()))) * 0x1p-24
	if p.rounded && !p.exact() {
		tol += 1.01 * 0x1p-7 // both operands are rounded to 8 bits
	}
	for x, got := range c {
		i, j := x/p.LDC, x%p.LDC
		if j >= p.N {
			require.True(t, got != got, "row %d: element %d beyond N = %d was written", i, j, p.N)
			continue
		}
		want, size := p.reference(i, j)
		if !same(float64(got), want, tol*size) {
			require.Failf(t, "wrong element", "C[%d,%d] = %v, want %v ± %v", i, j, got, want, tol*size)
		}
	}
}

// same reports whether got is within tol of want, or the same NaN or infinity.
func same(got, want, tol float64) bool {
	if want != want || math.IsInf(want, 0) {
		return got == want || got != got && want != want
	}
	return math.Abs(got-want) <= tol
}

// requireSameBits compares results of different runs.
func requireSameBits(t require.TestingT, want, got []float32, msg ...any) {
	require.Len(t, got, len(want), msg...)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "different bits", "element %d is %v, want %v (%v)", i, got[i], want[i], msg)
		}
	}
}
