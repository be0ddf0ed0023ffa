// Package attention computes softmax(scale·Q·Kᵀ)·V on the CPU, tile by tile, with at most one tile of scores in
// memory per worker (Dao et al., FlashAttention, 2022, and Dao, FlashAttention-2, 2023).
//
// # What a query sees
//
// Query i attends to the keys of one interval. Intervals express causal masks, padding, packed documents, sliding
// windows and a KV cache longer than its contents, so there is no other mask. A query with an empty interval gets a
// row of zeros and a log-sum-exp of −Inf.
//
// # What a result depends on
//
// Queries are divided into sequences: the finest division into consecutive runs whose intervals do not overlap, hence
// one per document. All tiles start at the start of a sequence and are summed in ascending order. A result therefore
// depends, bit for bit, on its own sequence only: not on the number of workers, nor on the other sequences of the
// batch or its position there. With [Engine.SetInvariant] it depends on its own query only.
package attention

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// ErrShape is wrapped by the errors for arguments that do not fit together.
var ErrShape = errors.New("attention: arguments do not fit together")

// Spec describes an attention over len(Lo) queries and Keys keys.
//
// Matrices over queries (q, o and their gradients) have QHeads·HeadDim
// columns, head after head; those over keys (k, v) KVHeads·HeadDim. Query
// head h uses key head h/(QHeads/KVHeads) (grouped-query attention).
type Spec struct {
	QHeads, KVHeads, HeadDim int
	Keys                     int     // rows of k and v
	Scale                    float32 // of the scores, usually 1/√HeadDim
	Window                   int     // if positive: a query sees at most the last Window keys before its Hi

	SoftCap float32 // if positive: scores s are SoftCap·tanh(s/SoftCap)
	Bias    Bias    // added to these

	// Query i attends the keys [max(Lo[i], Hi[i]−Window), Hi[i]).
	Lo, Hi []int32

	// With a Page, a power of two, key j is row Pages[j/Page]·Page + j%Page of k and v:
	// Forward alone takes it.
	Page  int
	Pages []int32
}

// Engine computes attentions. It keeps its scratch memory, so that a warm
// engine allocates nothing. Its methods are safe for concurrent use, but run
// one after the other, and must not be called from a task of its pool.
type Engine struct {
	mu  sync.Mutex // held by the call in progress
	run run
}

// New returns an engine on the workers of p. g multiplies the tiles; it must be on the same workers and have the same
// precision.
func New(p *pool.Pool, g *gemm.Engine) *Engine {
	e := &Engine{run: run{pool: p, gemm: g, workers: make([]worker, p.Workers())}}
	e.run.bind()
	switch g.Isa() { // others gain nothing
	case gemm.AMX.String():
		e.run.long = longFloats
		if g.Rounds() {
			e.run.long = longPairs
		}
	case gemm.AVX2.String():
		e.run.long = longAVX2
	}
	return e
}

func (s *Spec) queries() int { return len(s.Lo) }

// group returns the number of query heads that share a key head.
func (s *Spec) group() int { return s.QHeads / s.KVHeads }

// bounds returns the interval of query i. It is empty if a ≥ b.
func (s *Spec) bounds(i int) (a, b int) {
	a, b = int(s.Lo[i]), int(s.Hi[i])
	if s.Window > 0 {
		a = max(a, b-s.Window)
	}
	return a, b
}

func (s *Spec) check() error {
	switch {
	case s.QHeads < 1 || s.KVHeads < 1 || s.QHeads%s.KVHeads != 0:
		return fmt.Errorf("%w: %d query heads on %d key heads", ErrShape, s.QHeads, s.KVHeads)
	case s.HeadDim < 1:
		return fmt.Errorf("%w: head size %d", ErrShape, s.HeadDim)
	case len(s.Lo) != len(s.Hi):
		return fmt.Errorf("%w: %d lower and %d upper bounds", ErrShape, len(s.Lo), len(s.Hi))
	}
	if err := s.checkBias(); err != nil {
		return err
	}
	if err := s.checkPages(); err != nil {
		return err
	}
	for i := range s.Lo {
		if a, b := s.bounds(i); a < b && (a < 0 || b > s.keys()) {
			return fmt.Errorf("%w: query %d attends keys [%d,%d) of %d", ErrShape, i, a, b, s.keys())
		}
	}
	return nil
}

// checkRows finds matrices that are too small.
func (s *Spec) checkRows(overQueries, overKeys []Rows) error {
	check := func(list []Rows, rows, cols int, what string) error {
		for _, r := range list {
			if rows > 0 && (r.Stride < cols || r.elements() < (rows-1)*r.Stride+cols) {
				return fmt.Errorf("%w: a matrix over %s has %d elements, [%d,%d] with stride %d needs more",
					ErrShape, what, r.elements(), rows, cols, r.Stride)
			}
		}
		return nil
	}
	if err := check(overQueries, s.queries(), s.QHeads*s.HeadDim, "queries"); err != nil {
		return err
	}
	return check(overKeys, s.Keys, s.KVHeads*s.HeadDim, "keys")
}
