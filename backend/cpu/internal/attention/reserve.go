package attention

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
)

// Sizes are the maximum sizes of calls: queries, visible keys, query heads and elements per head, and whether keys
// may be paged.
type Sizes struct {
	Queries, Keys, Heads, HeadDim int
	Paged                         bool
}

// With returns the maximum of s and t, field by field.
func (s Sizes) With(t Sizes) Sizes {
	return Sizes{max(s.Queries, t.Queries), max(s.Keys, t.Keys), max(s.Heads, t.Heads), max(s.HeadDim, t.HeadDim), s.Paged || t.Paged}
}

// Reserve makes room for calls of at most these sizes, so that they allocate nothing.
func (e *Engine) Reserve(s Sizes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, queries, keys := &e.run, s.Queries, s.Keys
	r.gemm.ReserveSerial(r.tileProducts(s.HeadDim))
	r.widenWith(s.HeadDim)
	if s.Paged {
		r.gatherWith(s.HeadDim)
	}
	r.delta = grow(r.delta, queries*s.Heads)
	r.partial = grow(r.partial, r.partialsOf(queries, keys, s.Heads)*(s.HeadDim+2))
	for i := range r.workers {
		r.workers[i].chunks = withCapacity(r.workers[i].chunks, keys/decodeKeys+1)
	}
	// Sequences have queries and keys of their own.
	r.sequences, r.maxKey = withCapacity(r.sequences, queries), withCapacity(r.maxKey, queries)
	r.tiles, r.firstTile = withCapacity(r.tiles, queries), withCapacity(r.firstTile, queries+1)
	r.chunks = withCapacity(r.chunks, queries+keys/decodeKeys)
	r.keyTiles, r.firstKeyTile = withCapacity(r.keyTiles, queries+keys/tileKeys), withCapacity(r.firstKeyTile, queries+1)
}

// Bytes returns the memory that Reserve allocates for the same sizes.
func (e *Engine) Bytes(s Sizes) int64 {
	const ofPlan = 200 // bytes of all slices for a query
	floats := s.Queries*s.Heads + e.run.partialsOf(s.Queries, s.Keys, s.Heads)*(s.HeadDim+2)
	own := e.run.storedFloats(s.HeadDim) // of a worker
	if s.Paged {
		own += tileKeys * s.HeadDim
	}
	return int64(4*floats+ofPlan*s.Queries) + int64(e.run.pool.Workers())*(e.run.gemm.Bytes(e.run.tileProducts(s.HeadDim))+4*int64(own))
}

// tileProducts returns the memory for the matrix multiplications of a tile.
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

// partialsOf returns the maximum number of partial rows to merge, from chunks of short sequences or, in invariant
// mode, of the queries in progress.
func (e *run) partialsOf(queries, keys, heads int) int {
	if e.invariant {
		return e.pool.Workers() * (keys/decodeKeys + 1) * heads
	}
	if keys <= decodeKeys {
		return 0
	}
	return min(queries, decodeQueries) * heads * (2*keys/decodeKeys + 1)
}

// withCapacity returns s emptied, with capacity for n elements.
func withCapacity[T any](s []T, n int) []T { return slices.Grow(s[:0], n) }
