package gemm_test

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// thinned doubles some elements, whose places tell which, and clears the others.
func thinned(dst, src []float32, start int) {
	for i, v := range src {
		dst[i] = 0
		if (start+i)%5 != 3 && (start+i)%7 != 0 {
			dst[i] = 2 * v
		}
	}
}

// requireFilters computes p, of one pair, with a filter of each operand that may
// have one and of C, and requires what it computes of operands, and a C, that
// were filtered by themselves. It returns which operands had filters.
func requireFilters(t interface {
	cleaner
	require.TestingT
}, engines []*gemm.Engine, p *problem) (ofA, ofB bool) {
	applied := func(m *matrix) gemm.Matrix {
		dst := make([]float32, len(m.f32))
		thinned(dst, m.f32, 0)
		x := m.Matrix
		x.Data = unsafe.Pointer(unsafe.SliceData(dst))
		return x
	}
	plain := *p
	plain.Pairs = append([]gemm.Pair(nil), p.Pairs...)
	pair, same := &p.Pairs[0], &plain.Pairs[0]
	pair.FilterA = thinned
	if ofA = engines[0].Filters(&p.Call); ofA {
		same.A = applied(p.a[0])
	} else {
		pair.FilterA = nil
	}
	pair.FilterB = thinned
	if ofB = engines[0].Filters(&p.Call); ofB {
		same.B = applied(p.b[0])
	} else {
		pair.FilterB = nil
	}
	want := plain.compute(t, engines[0].Run)
	for i := range p.M {
		row := want[i*p.LDC:][:p.N]
		thinned(row, row, i*p.LDC)
	}
	p.Filter = thinned
	for _, e := range engines {
		requireSameBits(t, want, p.compute(t, e.Run))
	}
	requireSameBits(t, want, p.compute(t, func(c *gemm.Call) { engines[1].Serial(2, c) }))
	return ofA, ofB
}

// A filter of an operand, or of C, is as good as one that was applied before, or
// is afterwards, to the last bit.
func TestFilters(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		engines := []*gemm.Engine{engine(t, 1, isa), engine(t, 3, isa)}
		rapid.Check(t, func(t *rapid.T) {
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			kind := rapid.SampledFrom([]string{"few columns", "deep", "packed", "any"}).Draw(t, "kind")
			m, n, k := dimension(1, 70), dimension(1, 200), dimension(1, 700)
			transA, transB := rapid.Bool(), rapid.Bool()
			switch kind {
			case "few columns":
				m, n, k, transA = dimension(65, 300), dimension(1, 64), dimension(192, 2053), rapid.Just(false)
			case "deep":
				m, n, k, transA, transB = dimension(1, 32), dimension(128, 1100), dimension(256, 1100), rapid.Just(true), rapid.Just(false)
			case "packed":
				m, n, k, transB = dimension(65, 131), dimension(65, 600), dimension(1, 600), rapid.Just(false)
			}
			p := newProblem(r, m.Draw(t, "M"), n.Draw(t, "N"), paddeds.Draw(t, "pad C"), rapid.Bool().Draw(t, "accumulate"), rapid.Bool().Draw(t, "bias"))
			depth := k.Draw(t, "K")
			a := newMatrix(t, r, p.M, depth, gemm.F32, transA.Draw(t, "Aᵀ"), paddeds.Draw(t, "pad A"))
			p.add(a, newMatrix(t, r, depth, p.N, gemm.F32, transB.Draw(t, "Bᵀ"), paddeds.Draw(t, "pad B")), alphas.Draw(t, "α"))
			requireFilters(t, engines, p)
		})
	})
}

// Calls of these shapes have filters at least of these operands; others are up
// to the machine.
func TestFilteredWays(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		engines := []*gemm.Engine{engine(t, 1, isa), engine(t, 3, isa)}
		for _, c := range []struct {
			way      string
			m, n, k  int
			transA   bool
			transB   bool
			ofA, ofB bool
		}{
			{way: "longK", m: 16, n: 1027, k: 520, transA: true, ofB: true},
			{way: "longK, of long rows", m: 16, n: 2101, k: 300, transA: true, ofB: true},
			{way: "panels", m: 97, n: 257, k: 301, ofA: true, ofB: true},
			{way: "panels, of Aᵀ", m: 131, n: 67, k: 129, transA: true, ofB: true},
			{way: "few columns", m: 259, n: 17, k: 1031, ofA: true},
			{way: "registers of columns", m: 131, n: 28, k: 1100, ofA: true},
			{way: "more columns", m: 131, n: 50, k: 2100, ofA: true},
			{way: "tilesTransposed", m: 31, n: 65, k: 129, transB: true},
		} {
			r := rand.New(rand.NewPCG(uint64(c.k), 0))
			p := newProblem(r, c.m, c.n, 3, true, false)
			a := newMatrix(t, r, c.m, c.k, gemm.F32, c.transA, 1)
			p.add(a, newMatrix(t, r, c.k, c.n, gemm.F32, c.transB, 16), -0.3)
			ofA, ofB := requireFilters(t, engines, p)
			assert.True(t, ofA || !c.ofA, "A: %s", c.way)
			assert.True(t, ofB || !c.ofB, "B: %s", c.way)
		}
	})
}

func TestFilterThatCannotBe(t *testing.T) {
	e, x := engine(t, 1, gemm.Portable), make([]float32, 64)
	c := gemm.Call{M: 2, N: 2, LDC: 2, C: x[:4], Pairs: []gemm.Pair{{A: gemm.Of(x, 4), B: gemm.Of(x, 2), K: 4, Alpha: 1, FilterA: thinned}}}
	assert.False(t, e.Filters(&c))
	require.PanicsWithValue(t, "gemm: a filter of an operand that is not multiplied while in cache: ask Filters first", func() { e.Run(&c) })
}
