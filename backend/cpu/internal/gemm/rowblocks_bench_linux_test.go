package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/dev/cputime"
)

// BenchmarkInvariant prints what it costs that the bits of a row do not depend on the
// number of rows: the time of x·Wᵀ + h·Bᵀ in that mode by the time out of it, the least of each, on one
// worker, taken in turns. It is processor time, which other programs do not lengthen much.
func BenchmarkInvariant(b *testing.B) {
	const in, out, rank = 2048, 2048, 16
	for _, elem := range []gemm.Elem{gemm.BF16, gemm.F32, gemm.NF4} {
		for _, rows := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("%v/%d rows", elem, rows), func(b *testing.B) {
				e, r := engine(b, 1, gemm.Supported()[len(gemm.Supported())-1]), rand.New(rand.NewPCG(1, 2))
				random := func(n int) []float32 {
					x := make([]float32, n)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					return x
				}
				c := gemm.Call{M: rows, N: out, LDC: out, C: make([]float32, rows*out), Pairs: []gemm.Pair{
					{A: gemm.Of(random(rows*in), in), B: gemm.Matrix{Data: weights(r, elem, in*out), Elem: elem, Stride: in, Trans: true}, K: in, Alpha: 1},
					{A: gemm.Of(random(rows*rank), rank), B: gemm.Of(random(out*rank), rank).T(), K: rank, Alpha: 1},
				}}
				least := cputime.Least(b, 2, func(i int) { c.Invariant = i == 1 }, func(int) { e.Run(&c) })
				b.ReportMetric(float64(least[1])/float64(least[0]), "price")
				b.ReportMetric(float64(least[0].Microseconds()), "plain-µs")
			})
		}
	}
}
