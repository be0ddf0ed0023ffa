package cpu

import (
	"sync/atomic"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// prefetcher fetches the weights of the next products while workers wait. A product
// of few rows takes as long as its weights take to come from memory. Without a
// prefetcher memory would rest between two products: while one worker normalises or
// rotates a row, ends its part, or the next token is chosen.
type prefetcher struct {
	engine *gemm.Engine
	next   atomic.Pointer[fetchList]
	at     []place // of each worker
}

// fetchList lists, for each worker, the memory to prefetch in order: its part of the weights of the next
// multiplications.
type fetchList [][][]byte

// place is the prefetch position of a worker. Only that worker uses it.
type place struct {
	in        *fetchList
	part, off int
	_         [128 - 24]byte // cache lines of its own
}

const (
	prefetchMost = 256 << 10 // bytes for each worker: its second-level cache has room for more
	prefetchBite = 2 << 10   // bytes at a time: a tenth of a microsecond
	prefetchRows = 8         // products of more rows have other things to do than to wait for memory
)

func newPrefetcher(e *gemm.Engine, workers int) *prefetcher {
	return &prefetcher{engine: e, at: make([]place, workers)}
}

// bite fetches a little for a worker and reports whether there was anything.
func (f *prefetcher) bite(worker int) bool {
	next, p := f.next.Load(), &f.at[worker]
	if next == nil {
		return false
	}
	if p.in != next {
		p.in, p.part, p.off = next, 0, 0
	}
	parts := (*next)[worker]
	if p.part == len(parts) {
		return false
	}
	rest := parts[p.part][p.off:]
	if !f.engine.FetchBytes(rest[:min(len(rest), prefetchBite)]) {
		return false
	}
	if p.off += prefetchBite; p.off >= len(parts[p.part]) {
		p.part, p.off = p.part+1, 0
	}
	return true
}

// prefetches has the list to fetch while each step of a program runs. Lists are made
// again when the places of the weights change.
type prefetches struct {
	weights [][]ir.Ref   // of the products of each step
	steps   []*fetchList // while step i runs
	first   []*byte      // of each weight, when steps was made
	made    bool
}

// newPrefetches finds the weights that the products of each step read row by row.
func newPrefetches(steps []step) *prefetches {
	p := &prefetches{weights: make([][]ir.Ref, len(steps)), steps: make([]*fetchList, len(steps))}
	for i := range steps {
		for _, l := range steps[i].launches {
			if !plain(&l) {
				continue
			}
			a := l.Attr.(ir.GemmAttr)
			for n := range a.N {
				if w := l.In[2*n+1]; w.Space == ir.SpaceArg && a.P[n].TB {
					p.weights[i] = append(p.weights[i], w)
				}
			}
		}
	}
	return p
}

// update makes the lists again where weights have moved, and drops them where a run
// has many rows.
func (p *prefetches) update(r *run, steps []step) {
	rows, n, moved := 0, 0, false
	for i, weights := range p.weights {
		if len(weights) > 0 {
			rows = max(rows, r.axis(steps[i].launches[0].Out[0], 0))
		}
		for _, w := range weights {
			if n == len(p.first) {
				p.first = append(p.first, nil)
			}
			first := unsafe.SliceData(r.bytes(w))
			moved = moved || p.first[n] != first
			p.first[n], n = first, n+1
		}
	}
	switch {
	case n == 0:
	case rows > prefetchRows:
		clear(p.steps)
		p.made = false
	case moved || !p.made:
		for i := range p.steps {
			if i > 0 && len(p.weights[i]) == 0 {
				p.steps[i] = p.steps[i-1]
				continue
			}
			p.steps[i] = p.after(r, i)
		}
		p.made = true
	}
}

// after builds the list for the duration of step i: the weights of later steps and, at the end of the program, of the
// first steps, for the next token.
func (p *prefetches) after(r *run, i int) *fetchList {
	workers := r.dev.pool.Workers()
	f := make(fetchList, workers)
	bytes := 0
	for n := 1; n < len(p.weights) && bytes < prefetchMost*workers; n++ {
		all := 0
		weights := p.weights[(i+n)%len(p.weights)]
		for _, w := range weights {
			all += len(r.bytes(w))
		}
		from := 0
		for _, w := range weights {
			b := r.bytes(w)
			for worker := range f {
				lo, hi := worker*all/workers-from, (worker+1)*all/workers-from
				lo, hi = max(0, lo), min(len(b), hi, lo+prefetchMost)
				if lo < hi {
					f[worker] = append(f[worker], b[lo:hi])
				}
			}
			from += len(b)
		}
		bytes += all
	}
	return &f
}
