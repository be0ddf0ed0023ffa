package attention

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// Reserve makes room for calls of at most so many queries, keys, query heads
// and elements of a head, so that these allocate nothing.
func (e *Engine) Reserve(queries, keys, heads, headDim int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.run
	r.gemm.ReserveSerial(r.tileProducts(headDim))
	r.widenWith(headDim)
	r.delta = grow(r.delta, queries*heads)
	r.partial = grow(r.partial, r.partialsOf(queries, keys, heads)*(headDim+2))
	for i := range r.workers {
		r.workers[i].chunks = room(r.workers[i].chunks, keys/decodeKeys+1)
	}
	// Sequences have queries and keys of their own.
	r.sequences, r.maxKey = room(r.sequences, queries), room(r.maxKey, queries)
	r.tiles, r.firstTile = room(r.tiles, queries), room(r.firstTile, queries+1)
	r.chunks = room(r.chunks, queries+keys/decodeKeys)
	r.keyTiles, r.firstKeyTile = room(r.keyTiles, queries+keys/tileKeys), room(r.firstKeyTile, queries+1)
}

// Bytes is the memory that Reserve takes for the same arguments.
func (e *Engine) Bytes(queries, keys, heads, headDim int) int64 {
	s := e.run.tileProducts(headDim)
	floats := queries*heads + e.run.partialsOf(queries, keys, heads)*(headDim+2)
	const ofPlan = 200 // bytes of all slices for a query
	return int64(4*floats+ofPlan*queries) + int64(e.run.pool.Workers())*(e.run.gemm.Bytes(s)+4*int64(e.run.storedFloats(headDim)))
}

// tileProducts is what the products of a tile need.
func (e *run) tileProducts(headDim int) gemm.Scratch {
	var s gemm.Scratch
	for _, size := range [][3]int{{tileQueries, tileKeys, headDim}, {tileQueries, headDim, tileKeys}, {tileKeys, headDim, tileQueries}} {
		pair := gemm.Pair{K: size[2]}
		if e.gemm.Widens() {
			pair.A.Elem, pair.B.Elem = gemm.BF16, gemm.BF16
		}
		s = s.With(e.gemm.Need(&gemm.Call{M: size[0], N: size[1], Pairs: []gemm.Pair{pair}}))
	}
	return s
}

// partialsOf is the most rows that chunks of short sequences, or of the queries under
// way, leave to be merged.
func (e *run) partialsOf(queries, keys, heads int) int {
	if e.invariant {
		return e.pool.Workers() * (keys/decodeKeys + 1) * heads
	}
	if keys <= decodeKeys {
		return 0
	}
	return min(queries, decodeQueries) * heads * (2*keys/decodeKeys + 1)
}

// room is s without elements and with room for n.
func room[T any](s []T, n int) []T { return slices.Grow(s[:0], n) }
