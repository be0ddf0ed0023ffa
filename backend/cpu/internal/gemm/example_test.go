package gemm_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// A linear layer with an adapter, y = x·Wᵀ + s·h·Bᵀ for h = x·Aᵀ, in two calls.
func ExampleEngine_Run() {
	const tokens, in, out, rank = 2, 3, 2, 1
	x := []float32{1, 2, 3, 4, 5, 6}             // [tokens, in]
	w := []float32{1, 0, 0, 0, 1, 0}             // [out, in]
	a, b := []float32{1, 1, 1}, []float32{1, -1} // [rank, in], [out, rank]
	h, y := make([]float32, tokens*rank), make([]float32, tokens*out)

	p := pool.New(2)
	defer p.Close()
	e := gemm.New(p)
	e.Run(&gemm.Call{M: tokens, N: rank, C: h, LDC: rank, Pairs: []gemm.Pair{
		{A: gemm.Of(x, in), B: gemm.Of(a, in).T(), K: in, Alpha: 1},
	}})
	e.Run(&gemm.Call{M: tokens, N: out, C: y, LDC: out, Pairs: []gemm.Pair{
		{A: gemm.Of(x, in), B: gemm.Of(w, in).T(), K: in, Alpha: 1},
		{A: gemm.Of(h, rank), B: gemm.Of(b, rank).T(), K: rank, Alpha: 0.5},
	}})
	fmt.Println(h, y)
	// Output: [6 15] [4 -1 11.5 -2.5]
}
