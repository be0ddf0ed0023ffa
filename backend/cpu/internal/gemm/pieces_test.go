package gemm_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// Weights of bfloat16 and of float32 are multiplied with all 24 bits of a float32,
// however they are multiplied: these have the last eight set, 2⁻¹⁵ of the whole,
// and one above them.
func TestAllBitsCount(t *testing.T) {
	eachISA(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(4, 4))
		for _, s := range []struct {
			m, n, k int
			elem    gemm.Elem
		}{{40, 50, 300, gemm.BF16}, {70, 130, 1100, gemm.BF16}, {9, 33, 129, gemm.BF16}, {130, 40, 300, gemm.F32}, {60, 70, 300, gemm.F32}, {30, 100, 1100, gemm.BF16}, {140, 100, 500, gemm.F32}} {
			for trans := range 2 {
				p := newProblem(r, s.m, s.n, 0, false, false)
				a, b := newMatrix(t, r, s.m, s.k, gemm.F32, false, 0), newMatrix(t, r, s.k, s.n, s.elem, trans > 0, 0)
				h, up := newMatrix(t, r, s.m, 16, gemm.F32, false, 0), newMatrix(t, r, 16, s.n, gemm.F32, trans > 0, 0)
				type part struct {
					m          *matrix
					rows, cols int
				}
				full := []part{{a, s.m, s.k}, {h, s.m, 16}, {up, 16, s.n}}
				if s.elem == gemm.F32 {
					full = append(full, part{b, s.k, s.n})
				}
				for _, x := range full {
					for i := range x.rows {
						for j := range x.cols {
							x.m.put(i, j, math.Float32frombits(0x3f8080ff|uint32((i*7+j*13)%128)<<16))
						}
					}
				}
				for i := range s.k * s.n {
					if s.elem == gemm.BF16 {
						b.put(i/s.n, i%s.n, 1+float32((i/s.n+i%s.n)%8)/8)
					}
				}
				p.add(a, b, 1)
				p.add(h, up, 64)
				c := p.compute(t, e.Run)
				for i := range s.m {
					for j := range s.n {
						want := 0.0
						for k := range s.k {
							want += a.values[i*s.k+k] * b.values[k*s.n+j]
						}
						for k := range 16 {
							want += 64 * h.values[i*16+k] * up.values[k*s.n+j]
						}
						require.InEpsilon(t, want, c[i*p.LDC+j], 0x1p-18, "%v %d %d", s, i, j)
					}
				}
			}
		}
	})
}

// A product of float32 is as near to its sum in float64 as rounding every sum of a
// stretch allows, taken apart or not.
func TestRoundingErrors(t *testing.T) {
	const m, n, k = 130, 100, 4096
	for _, elem := range []gemm.Elem{gemm.F32, gemm.BF16} {
		r := rand.New(rand.NewPCG(5, 5))
		a, b := newMatrix(t, r, m, k, gemm.F32, false, 0), newMatrix(t, r, k, n, elem, true, 0)
		for i := range k { // all bits, whatever newMatrix has drawn
			for x := range m {
				a.put(x, i, float32(r.NormFloat64()))
			}
			for x := range n {
				b.put(i, x, float32(r.NormFloat64()))
			}
		}
		var want [m * n]float64
		size := 0.0
		for i := range m {
			for j := range n {
				for x := range k {
					want[i*n+j] += a.values[i*k+x] * b.values[x*n+j]
				}
				size += want[i*n+j] * want[i*n+j]
			}
		}
		eachISA(t, func(t *testing.T, isa gemm.ISA) {
			for _, rows := range []int{8, 30, 60, m} { // which tiles take in other ways each
				p := newProblem(r, rows, n, 0, false, false)
				p.add(a, b, 1)
				c, off := p.compute(t, engine(t, 2, isa).Run), 0.0
				for i, w := range want[:rows*n] {
					d := float64(c[i/n*p.LDC+i%n]) - w
					off += d * d
				}
				t.Logf("root mean square, %d rows with %v: %.2g of the result's", rows, elem, math.Sqrt(off/(size*float64(rows)/m)))
				require.Less(t, math.Sqrt(off/(size*float64(rows)/m)), 5e-7)
			}
		})
	}
}

// An infinity times what one bfloat16 holds, whose other pieces are nothing, is an
// infinity and not NaN, in either operand, and in a pair beside others.
func TestInfinitiesOfPieces(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		e := engine(t, 2, isa)
		r := rand.New(rand.NewPCG(6, 6))
		const k, at = 300, 37
		for _, s := range [][2]int{{8, 130}, {30, 130}, {60, 130}, {140, 130}, {140, 40}} {
			m, n := s[0], s[1]
			for _, elem := range []gemm.Elem{gemm.F32, gemm.BF16, gemm.F16} {
				for trans := range 2 {
					for pair := range 2 {
						for _, inB := range []bool{false, true} {
							p := newProblem(r, m, n, 0, false, false)
							for x, k := range []int{k, 16} {
								a, b := newMatrix(t, r, m, k, gemm.F32, false, 0), newMatrix(t, r, k, n, []gemm.Elem{elem, gemm.F32}[x], trans > 0, 0)
								for i := range k {
									for j := range m {
										a.put(j, i, 0.5)
									}
									for j := range n {
										b.put(i, j, 2)
									}
								}
								switch {
								case x != pair:
								case inB:
									b.put(k/2, at, float32(math.Inf(1)))
								default:
									a.put(m/2, k/2, float32(math.Inf(1)))
								}
								p.add(a, b, 1)
							}
							check := func(ready bool) {
								for i, v := range p.compute(t, e.Run) {
									want := float64(k + 16)
									if inB && i%n == at || !inB && i/n == m/2 {
										want = math.Inf(1)
									}
									if float64(v) == want {
										continue
									}
									require.Equal(t, want, float64(v), "m=%d n=%d %v trans=%d pair=%d in B=%v ready=%v [%d,%d]", m, n, elem, trans, pair, inB, ready, i/n, i%n)
								}
							}
							check(false)
							p.Pairs[0].Ready = e.Prepack(make([]float32, e.PrepackedFloats(elem, k, n)), p.b[0].Matrix, k, n)
							check(true)
						}
					}
				}
			}
		}
	})
}
