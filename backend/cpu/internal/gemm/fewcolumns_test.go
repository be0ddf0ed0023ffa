package gemm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// Any number of columns is right that one of an adapter's products may have, with
// rows and a k axis that are no whole tiles or registers.
func TestFewColumns(t *testing.T) {
	eachPrecision(t, func(t *testing.T, isa gemm.ISA) {
		engines := []*gemm.Engine{engine(t, 1, isa), engine(t, 3, isa)}
		r := rand.New(rand.NewPCG(8, 8))
		for n := 1; n <= 65; n++ {
			m, k, pad := 9+r.IntN(40), 192+r.IntN(700), r.IntN(3)
			elem, alpha := []gemm.Elem{gemm.F32, gemm.BF16, gemm.F16}[n%3], []float32{1, -0.3}[r.IntN(2)]
			p := newProblem(r, m, n, pad, r.IntN(2) == 0, r.IntN(2) == 0)
			for pairs := 1 + r.IntN(2); pairs > 0; pairs-- {
				p.add(newMatrix(t, r, m, k, gemm.F32, false, pad), newMatrix(t, r, k, n, elem, r.IntN(2) == 0, pad), alpha)
			}
			p.rounded = isa&rounding != 0
			c := p.compute(t, engines[0].Run)
			p.requireRight(t, c)
			requireSameBits(t, c, p.compute(t, engines[1].Run), n)
		}
	})
}
