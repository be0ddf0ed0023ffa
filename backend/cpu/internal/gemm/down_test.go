package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// carried is calls beside downs that they read.
type carried struct {
	downs, calls []*problem
	h            []*matrix // what downs give
}

// newCarried is calls of x [m,k] with weights [k,n] of elem each, and for each of
// ranks a down of x whose result all calls read.
func newCarried(t cleaner, r *rand.Rand, x *matrix, m, k int, ns, ranks []int, elem gemm.Elem, trans bool) *carried {
	p := &carried{}
	for _, rank := range ranks {
		d := newProblem(r, m, rank, r.IntN(3), false, false)
		d.add(x, newMatrix(t, r, k, rank, gemm.F32, trans, r.IntN(2)), []float32{1, 2, -0.3}[r.IntN(3)])
		p.downs = append(p.downs, d)
		p.h = append(p.h, newMatrix(t, r, m, rank, gemm.F32, false, d.LDC-rank))
	}
	for _, n := range ns {
		c := newProblem(r, m, n, r.IntN(3), r.IntN(2) > 0, r.IntN(2) > 0)
		first := r.IntN(len(ranks) + 1)
		for i := range len(ranks) + 1 {
			switch {
			case i == first:
				c.add(x, newMatrix(t, r, k, n, elem, trans, 0), 1)
			case i > first:
				c.add(p.h[i-1], newMatrix(t, r, ranks[i-1], n, gemm.F32, trans, 0), 2)
			default:
				c.add(p.h[i], newMatrix(t, r, ranks[i], n, gemm.F32, trans, 0), 0.5)
			}
		}
		p.calls = append(p.calls, c)
	}
	return p
}

// run computes all, as Run does where downs are not carried, and reports whether they are.
func (p *carried) run(t cleaner, e *gemm.Engine) (downs, calls [][]float32, carries bool) {
	var first, second []*gemm.Call
	for i, d := range p.downs {
		d.compute(t, func(c *gemm.Call) {
			c.C = p.h[i].f32
			first = append(first, c)
		})
	}
	for _, d := range p.calls {
		d.compute(t, func(c *gemm.Call) { second = append(second, c) })
	}
	for _, h := range p.h { // must be written before it is read
		for i := range h.f32 {
			h.f32[i] = float32(math.NaN())
		}
	}
	if carries = e.Carries(first, second); carries {
		e.RunAfter(first, second)
	} else {
		e.RunAll(first)
		e.RunAll(second)
	}
	for _, c := range first {
		downs = append(downs, append([]float32(nil), c.C...))
	}
	for _, c := range second {
		calls = append(calls, c.C)
	}
	return downs, calls, carries
}

// requireRight computes all on each engine: downs are right, calls are what Run
// computes of them, and all have the same bits on all engines.
func (p *carried) requireRight(t interface {
	cleaner
	require.TestingT
}, engines []*gemm.Engine, rounded bool) (carries bool) {
	var downs, calls [][]float32
	for i, e := range engines {
		d, c, does := p.run(t, e)
		if i == 0 {
			downs, calls, carries = d, c, does
		}
		require.Equal(t, carries, does)
		for j, one := range p.downs {
			one.rounded = rounded
			one.requireRight(t, d[j])
			requireSameBits(t, downs[j], d[j], "down", j)
		}
		for j, one := range p.calls {
			requireSameBits(t, calls[j], c[j], "call", j)
			requireSameBits(t, one.compute(t, e.Run), c[j], "call of what downs gave", j)
		}
	}
	return carries
}

// Products of few columns are as right beside the product that packs what they read as
// alone, and what reads them is the same to the last bit.
func TestRunAfter(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		engines := []*gemm.Engine{engine(t, 1, isa), engine(t, 2, isa), engine(t, 5, isa)}
		rapid.Check(t, func(t *rapid.T) {
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			m, k := rapid.OneOf(dimension(1, 131), dimension(65, 200)).Draw(t, "M"), dimension(1, 1100).Draw(t, "K")
			x := newMatrix(t, r, m, k, gemm.F32, rapid.Bool().Draw(t, "xᵀ"), r.IntN(3))
			ns := rapid.SliceOfN(dimension(1, 200), 1, 3).Draw(t, "N")
			ranks := rapid.SliceOfN(dimension(rapid.SampledFrom([]int{1, 8, 33}).Draw(t, "least rank"), 64), 1, 3).Draw(t, "ranks")
			p := newCarried(t, r, x, m, k, ns, ranks, elems.Draw(t, "weights"), rapid.Bool().Draw(t, "transposed"))
			p.requireRight(t, engines, isa&rounding != 0)
		})
	})
}

// They are carried where tiles multiply, by adapters in both directions, with several
// stretches of k, in blocks of rows, with filters and with what is not finite.
func TestCarriedDowns(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		engines := []*gemm.Engine{engine(t, 1, isa), engine(t, 3, isa)}
		r := rand.New(rand.NewPCG(12, 12))
		for _, trans := range []bool{true, false} {
			for _, elem := range []gemm.Elem{gemm.BF16, gemm.F32} {
				x := newMatrix(t, r, 130, 750, gemm.F32, false, 1)
				p := newCarried(t, r, x, 130, 750, []int{131, 70}, []int{48, 33}, elem, trans)
				tiles := isa&^rounding == gemm.AMX
				require.Equal(t, tiles, p.requireRight(t, engines, isa&rounding != 0))

				p.downs[0].Pairs[0].FilterA = thinned
				downs, _, carries := p.run(t, engines[1])
				require.Equal(t, tiles, carries)
				if carries {
					filtered := *p.downs[0]
					filtered.a = []*matrix{x.filtered(thinned)}
					filtered.requireRight(t, downs[0])
					p.downs[1].requireRight(t, downs[1])
				}
				p.downs[0].Pairs[0].FilterA = nil

				want, _, _ := p.run(t, engines[0])
				for _, e := range engines {
					e.PackAtMost(3 * 850 * 40)
					got, _, _ := p.run(t, e)
					e.PackAtMost(8 << 20)
					for i := range want {
						requireSameBits(t, want[i], got[i], "in blocks of rows", i)
					}
				}

				x.exact = false
				x.put(3, 700, float32(math.Inf(1)))
				x.put(120, 5, float32(math.NaN()))
				for _, d := range p.downs {
					d.b[0].put(9, 1, float32(math.Inf(-1)))
				}
				p.requireRight(t, engines, isa&rounding != 0)
			}
		}
	})
}

// filtered is what a filter makes of m, whose rows lie as those of op(m).
func (m *matrix) filtered(f gemm.Filter) *matrix {
	dst := make([]float32, len(m.f32))
	f(dst, m.f32, 0)
	x := *m
	x.Data, x.f32, x.values = unsafe.Pointer(unsafe.SliceData(dst)), dst, make([]float64, len(m.values))
	for i := range x.values {
		x.values[i] = float64(dst[i/m.cols*m.Stride+i%m.cols])
	}
	return &x
}

// Reserved for, downs and calls allocate nothing.
func TestRunAfterAllocatesNothing(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		r := rand.New(rand.NewPCG(13, 13))
		x := newMatrix(t, r, 150, 700, gemm.F32, false, 0)
		p := newCarried(t, r, x, 150, 700, []int{130, 70}, []int{40, 33}, gemm.BF16, true)
		p.downs[0].Pairs[0].FilterA = thinned
		var downs, calls []*gemm.Call
		for i, d := range p.downs {
			d.C = p.h[i].f32
			downs = append(downs, &d.Call)
		}
		for _, c := range p.calls {
			c.C = c.before
			calls = append(calls, &c.Call)
		}
		const own = 256 // bytes: the runtime allocates now and then, too
		least := 1 << 30
		for try := 0; try < 3 && least > own; try++ {
			e := engine(t, 2, isa)
			if !e.Carries(downs, calls) {
				return
			}
			e = engine(t, 2, isa)
			e.Reserve(e.NeedAfter(downs, calls))
			least = min(least, allocated(func() { e.RunAfter(downs, calls) }))
		}
		require.LessOrEqual(t, least, own)
	})
}

// What begins with another matrix, is too wide, or is added to something is not carried.
func TestNotCarried(t *testing.T) {
	e := engine(t, 2, gemm.Supported()[len(gemm.Supported())-1])
	r := rand.New(rand.NewPCG(14, 14))
	x, other := newMatrix(t, r, 150, 300, gemm.F32, false, 0), newMatrix(t, r, 150, 300, gemm.F32, false, 0)
	for name, change := range map[string]func(d, c *gemm.Call){
		"another matrix":      func(d, c *gemm.Call) { d.Pairs[0].A = other.Matrix },
		"part of the matrix":  func(d, c *gemm.Call) { d.Pairs[0].K-- },
		"no rows":             func(d, c *gemm.Call) { d.M, c.M = 0, 0 },
		"wide":                func(d, c *gemm.Call) { d.N = 65 },
		"narrow":              func(d, c *gemm.Call) { d.N = 7 },
		"added":               func(d, c *gemm.Call) { d.Accumulate = true },
		"two pairs":           func(d, c *gemm.Call) { d.Pairs = append(d.Pairs, d.Pairs[0]) },
		"nothing":             func(d, c *gemm.Call) { d.Pairs[0].Alpha = 0 },
		"read across":         func(d, c *gemm.Call) { c.Pairs[1].A.Trans = true },
		"read from elsewhere": func(d, c *gemm.Call) { c.Pairs[1].A.Data = unsafe.Add(c.Pairs[1].A.Data, 4) },
		"few rows":            func(d, c *gemm.Call) { d.M, c.M = 5, 5 },
	} {
		p := newCarried(t, r, x, 150, 300, []int{130}, []int{40}, gemm.BF16, true)
		d, c := p.downs[0].Call, p.calls[0].Call
		d.LDC, d.C, c.C = 70, make([]float32, 150*70), p.calls[0].before
		pairs := &c.Pairs
		for i := range *pairs {
			if (*pairs)[i].K == 40 {
				(*pairs)[i].A = gemm.Of(d.C, 70)
			} else if i > 0 {
				(*pairs)[0], (*pairs)[i] = (*pairs)[i], (*pairs)[0]
			}
		}
		downs, calls := []*gemm.Call{&d}, []*gemm.Call{&c}
		require.Equal(t, e.Isa() == gemm.AMX.String(), e.Carries(downs, calls), name)
		change(&d, &c)
		require.False(t, e.Carries(downs, calls), name)
		require.Panics(t, func() { e.RunAfter(downs, calls) }, name)
	}
}
