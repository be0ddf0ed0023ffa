package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// TestPrepack: a product of a B that is packed already has the bits of one that
// is not, alone or with the pair of an adapter before it or behind it, over one
// stretch of k or several.
func TestPrepack(t *testing.T) {
	p := pool.New(2)
	defer p.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for _, isa := range gemm.Supported() {
		for _, precision := range []gemm.Elem{gemm.F32, gemm.BF16} {
			e := gemm.NewISA(p, isa)
			e.SetPrecision(precision)
			for _, size := range [][3]int{{9, 65, 3}, {40, 97, 129}, {33, 512, 700}, {70, 130, 2500}, {50, 130, 300}, {129, 97, 300}, {160, 530, 700}} {
				if size[0]*size[1]*size[2] > 3e7 && tooSlow(isa) {
					continue
				}
				for i, elem := range []gemm.Elem{gemm.F32, gemm.BF16, gemm.F16} {
					for _, trans := range []bool{true, false} {
						m, n, k := size[0], size[1], size[2]
						a, b := newMatrix(t, r, m, k, gemm.F32, false, 0), newMatrix(t, r, k, n, elem, trans, 0)
						h, up := newMatrix(t, r, m, 7, gemm.F32, false, 0), newMatrix(t, r, 7, n, gemm.F32, true, 0)
						base, adapter := gemm.Pair{A: a.Matrix, B: b.Matrix, K: k, Alpha: 1}, gemm.Pair{A: h.Matrix, B: up.Matrix, K: 7, Alpha: 0.5}
						pairs := [][]gemm.Pair{{base}, {base, adapter}, {adapter, base, adapter}}[i]
						plain := gemm.Call{M: m, N: n, LDC: n, C: make([]float32, m*n), Pairs: pairs}
						e.Run(&plain)
						ready := plain
						ready.C, ready.Pairs = make([]float32, m*n), append([]gemm.Pair(nil), pairs...)
						for j := range pairs {
							if pairs[j].K == k {
								ready.Pairs[j].Ready = e.Prepack(make([]float32, e.PrepackedFloats(b.Elem, k, n)), b.Matrix, k, n)
							}
						}
						e.Run(&ready)
						require.Equal(t, plain.C, ready.C, fmt.Sprint(isa, precision, size, elem, trans))
					}
				}
			}
		}
	}
}
