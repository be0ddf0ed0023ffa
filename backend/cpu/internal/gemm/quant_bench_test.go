package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// BenchmarkQuantizedDecode multiplies one row with weights of each type that do not fit
// the caches: the bytes are those of the weights.
func BenchmarkQuantizedDecode(b *testing.B) {
	const n, k, copies = 2048, 2048, 24
	for _, elem := range []gemm.Elem{gemm.BF16, gemm.Q8, gemm.NF4} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%v/%d", elem, workers), func(b *testing.B) {
				e := engine(b, workers, gemm.Supported()[len(gemm.Supported())-1])
				r := rand.New(rand.NewPCG(1, 1))
				size := n * k * 2
				if d, ok := quantized[elem]; ok {
					size = d.Bytes(n * k)
				}
				all := make([]byte, copies*size)
				if d, ok := quantized[elem]; ok {
					w := make([]float32, n*k)
					for i := range w {
						w[i] = float32(r.NormFloat64())
					}
					if err := quant.Quantize(all[:size], w, d); err != nil {
						b.Fatal(err)
					}
				}
				for i := 1; i < copies; i++ {
					copy(all[i*size:], all[:size])
				}
				x, c := make([]float32, k), make([]float32, n)
				i := 0
				b.SetBytes(int64(size))
				for b.Loop() {
					w := gemm.Matrix{Data: unsafe.Pointer(&all[i%copies*size]), Elem: elem, Stride: k, Trans: true}
					e.Run(&gemm.Call{M: 1, N: n, C: c, LDC: n, Pairs: []gemm.Pair{{A: gemm.Of(x, k), B: w, K: k, Alpha: 1}}})
					i++
				}
				b.ReportMetric(float64(n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gweights/s")
			})
		}
	}
}

// BenchmarkQuantizedPacked multiplies many rows, where weights are widened on their way
// into panels.
func BenchmarkQuantizedPacked(b *testing.B) {
	const n, k = 2048, 2048
	for _, m := range []int{8, 16, 32, 64, 512} {
		for _, elem := range []gemm.Elem{gemm.BF16, gemm.Q8, gemm.NF4} {
			for _, trans := range []bool{true, false} {
				b.Run(fmt.Sprintf("%v/m=%d/Bᵀ=%v", elem, m, trans), func(b *testing.B) {
					e := engine(b, 1, gemm.Supported()[len(gemm.Supported())-1])
					w := make([]byte, 2*n*k)
					x, c := make([]float32, m*k), make([]float32, m*n)
					call := gemm.Call{M: m, N: n, C: c, LDC: n, Pairs: []gemm.Pair{{A: gemm.Of(x, k), K: k, Alpha: 1,
						B: gemm.Matrix{Data: unsafe.Pointer(&w[0]), Elem: elem, Stride: k, Trans: trans}}}}
					for b.Loop() {
						e.Run(&call)
					}
					b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
