package gemm_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// A prompt of 16 tokens meets a weight of a checkpoint.
func ExampleExplain() {
	c := gemm.Call{M: 16, N: 2048, Pairs: []gemm.Pair{
		{A: gemm.Matrix{Stride: 2048}, B: gemm.Matrix{Elem: gemm.BF16, Stride: 2048, Trans: true}, K: 2048, Alpha: 1},
	}}
	for _, isa := range []gemm.ISA{gemm.Portable, gemm.AVX2, gemm.AMX} {
		fmt.Println(gemm.Explain(isa, gemm.F32, &c))
	}
	// Output:
	// panels floats
	//	for: all others: many rows
	//	since: 84-94 % of peak
	// rowsInPlace floats
	//	for: x·Wᵀ of 1 to 64 rows, by instruction set and the length of k
	//	since: packing B would take longer than multiplying: 8 rows 2.5-3.5 times torch
	// tilesTransposed piecesOfA
	//	for: x·Wᵀ, N > 64, 2 to 64 rows; 25 to 127 if both operands are split
	//	since: rows of a weight are rows of a tile, without packing: 8 rows 0.9 → 1.6 times torch
}

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
