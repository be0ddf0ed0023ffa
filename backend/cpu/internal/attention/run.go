package attention

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// run is one Forward or Backward in progress: what its tasks read, and the
// memory that stays for the next.
type run struct {
	pool    *pool.Pool
	gemm    *gemm.Engine
	workers []worker

	arguments
	division
	invariant bool      // see SetInvariant
	taskHeads int       // key heads that a task of decoding takes
	delta     []float32 // [queries, QHeads]: Σ dO·o
	partial   []float32 // rows of the chunks

	chunksOfRow int // most chunks of a query, where invariant

	tasks struct { // the methods as functions, made once
		forward, row, sequence, keys, queries, delta func(id, i int)
	}
}

// arguments belong to the caller and are dropped when the call returns.
type arguments struct {
	*Spec
	q, k, v, o Rows
	lse        []float32
	dO         Rows
	grad       Gradients
}

// worker is the scratch memory of one worker.
type worker struct {
	scores, grads [tileQueries * tileKeys]float32
	max, sum      [tileQueries]float32
	slope         [tileKeys]float32 // of the cap, for one query
	chunks        []chunk           // of one query, where invariant

	stored, out, query, wide []float32 // for values in bfloat16: all, and its parts
	tile                     []float32 // for gathered keys of a tile

	mul  gemm.Call
	pair [1]gemm.Pair

	_ [128]byte // no cache line is shared with the next worker
}

func (e *run) bind() {
	e.tasks.forward, e.tasks.row, e.tasks.sequence = e.forwardTask, e.rowTask, e.sequenceTask
	e.tasks.keys, e.tasks.queries = e.keyTask, e.queryTask
	e.tasks.delta = e.deltaTask
}

// product computes one matrix multiplication with the memory of worker id, which also contains the call, to avoid an
// allocation.
func (e *run) product(id int, c gemm.Call, p gemm.Pair) {
	w := &e.workers[id]
	w.pair[0] = p
	c.Pairs = w.pair[:]
	w.mul = c
	e.gemm.Serial(id, &w.mul)
	w.mul, w.pair[0] = gemm.Call{}, gemm.Pair{} // hold nothing of the caller
}

func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n, n+n/8)
	}
	return x[:n]
}
