package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// rowCall is a call whose rows are to be computed in any company.
type rowCall struct {
	a    [][]float32 // of each pair
	ks   []int
	call gemm.Call
}

// weights are random elements of a type.
func weights(r *rand.Rand, elem gemm.Elem, n int) unsafe.Pointer {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	dtype := map[gemm.Elem]tensor.DType{gemm.F32: tensor.F32, gemm.F16: tensor.F16, gemm.BF16: tensor.BF16, gemm.Q8: tensor.Q8, gemm.NF4: tensor.NF4}[elem]
	b := make([]byte, dtype.Bytes(n))
	var err error
	if dtype.Quantized() {
		err = quant.Quantize(b, x, dtype)
	} else {
		err = tensor.FromFloat32(b, x, dtype)
	}
	if err != nil {
		panic(err)
	}
	return unsafe.Pointer(&b[0])
}

func drawRows(t *rapid.T, rows int) *rowCall {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	n := dimension(1, 257).Draw(t, "n")
	p := &rowCall{call: gemm.Call{M: rows, N: n, LDC: n, C: make([]float32, rows*n)}}
	trans := rapid.Bool().Draw(t, "all as they lie")
	for i := range rapid.IntRange(1, 3).Draw(t, "pairs") {
		k := rapid.OneOf(dimension(1, 131), dimension(512, 2309), rapid.Just(4352)).Draw(t, fmt.Sprintf("k%d", i))
		elem := rapid.SampledFrom([]gemm.Elem{gemm.F32, gemm.F32, gemm.BF16, gemm.F16, gemm.Q8, gemm.NF4}).Draw(t, "elem")
		a := make([]float32, rows*k)
		for j := range a {
			a[j] = float32(r.NormFloat64())
		}
		pair := gemm.Pair{A: gemm.Of(a, k), B: gemm.Matrix{Data: weights(r, elem, k*n), Elem: elem, Stride: k, Trans: true}, K: k, Alpha: alphas.Draw(t, "alpha")}
		if !trans && rapid.Bool().Draw(t, "columns") {
			pair.B.Stride, pair.B.Trans = n, false
		}
		p.a, p.ks = append(p.a, a), append(p.ks, k)
		p.call.Pairs = append(p.call.Pairs, pair)
	}
	if rapid.Bool().Draw(t, "bias") {
		p.call.Bias = make([]float32, n)
		for j := range p.call.Bias {
			p.call.Bias[j] = float32(r.NormFloat64())
		}
	}
	return p
}

// some is the call of rows [m0,m1) alone.
func (p *rowCall) some(m0, m1 int) *gemm.Call {
	c := p.call
	c.M, c.C, c.Pairs = m1-m0, make([]float32, (m1-m0)*c.N), slices.Clone(c.Pairs)
	for i := range c.Pairs {
		c.Pairs[i].A = gemm.Of(p.a[i][m0*p.ks[i]:], p.ks[i])
	}
	return &c
}

// TestInvariant: the bits of a row are the same in any company, with any number of
// workers, and in a group.
func TestInvariant(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		one, whole := engine(t, 2, isa), engine(t, 1, isa)
		whole.SetInvariant(true)
		rapid.Check(t, func(t *rapid.T) {
			rows := rapid.OneOf(rapid.IntRange(1, 12), rapid.IntRange(13, 150)).Draw(t, "rows")
			p := drawRows(t, rows)
			p.call.Invariant = true
			one.Run(&p.call)
			want := bits(p.call.C)
			again := p.some(0, rows)
			again.Invariant = false
			whole.Run(again)
			require.Equal(t, want, bits(again.C), "the engine's mode")
			for range 3 {
				m0 := rapid.IntRange(0, rows-1).Draw(t, "from")
				m1 := rapid.OneOf(rapid.Just(m0+1), rapid.IntRange(m0+1, rows)).Draw(t, "to")
				c, d := p.some(m0, m1), p.some(m0, m0+1)
				one.RunAll([]*gemm.Call{c, d})
				require.Equal(t, want[m0*p.call.N:m1*p.call.N], bits(c.C), "rows [%d,%d) of %d", m0, m1, rows)
				require.Equal(t, want[m0*p.call.N:(m0+1)*p.call.N], bits(d.C), "row %d of %d", m0, rows)
			}
		})
	})
}

// TestInvariantFilter: a filter of C is applied once, by every way of the mode.
func TestInvariantFilter(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		rapid.Check(t, func(t *rapid.T) {
			p := drawRows(t, rapid.IntRange(1, 70).Draw(t, "rows"))
			p.call.Invariant = true
			e.Run(&p.call)
			want := p.call.C
			for i := range want {
				want[i] *= 2
			}
			c := p.some(0, p.call.M)
			c.Filter = func(dst, src []float32, _ int) {
				for i, v := range src {
					dst[i] = 2 * v
				}
			}
			e.Run(c)
			require.Equal(t, bits(want), bits(c.C))
		})
	})
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		b[i] = math.Float32bits(v)
	}
	return b
}

// TestInvariantNeed: a call of the mode allocates nothing where its memory was reserved.
func TestInvariantNeed(t *testing.T) {
	const own = 256 // bytes: the runtime allocates now and then, too
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		for _, shape := range [][4]int{{1, 64, 700, 0}, {9, 300, 700, 0}, {130, 300, 700, 1}, {130, 16, 700, 0}, {130, 4, 700, 0}, {70, 300, 16, 1}, {33, 16, 300, 1}} {
			for _, elem := range []gemm.Elem{gemm.F32, gemm.BF16, gemm.NF4} {
				m, n, k := shape[0], shape[1], shape[2]
				r := rand.New(rand.NewPCG(1, 2))
				c := gemm.Call{M: m, N: n, LDC: n, C: make([]float32, m*n), Invariant: true, Pairs: []gemm.Pair{{
					A: gemm.Of(make([]float32, m*k), k), B: gemm.Matrix{Data: weights(r, elem, k*n), Elem: elem, Stride: k, Trans: true}, K: k, Alpha: 1,
				}}}
				if shape[3] == 1 {
					c.Pairs[0].B.Stride, c.Pairs[0].B.Trans = n, false
				}
				if elem == gemm.BF16 { // C lies so, too
					c.C, c.Stored = nil, &gemm.Stored{Data: unsafe.Pointer(unsafe.SliceData(make([]uint16, m*n)))}
				}
				for rows := m; rows > 0; rows /= 2 {
					least := 1 << 30
					for try := 0; try < 3 && least > own; try++ {
						e := engine(t, 2, isa)
						if c.Stored != nil {
							e.SetPrecision(gemm.BF16)
						}
						c.M = m
						e.Reserve(e.Need(&c))
						c.M = rows
						least = min(least, allocated(func() { e.Run(&c) }))
					}
					require.LessOrEqual(t, least, own, "%d rows of %v of %v", rows, shape, elem)
				}
			}
		}
	})
}
