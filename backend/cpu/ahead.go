package cpu

import (
	"sync/atomic"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/ir"
)

// ahead fetches the weights of the next products while workers wait. A product
// of few rows takes as long as its weights take to come from memory, which
// rests between two of them: while one worker normalises or rotates a row, ends
// its part, or the next token is chosen.
type ahead struct {
	engine *gemm.Engine
	next   atomic.Pointer[fetches]
	at     []place // of each worker
}

// fetches is what each worker fetches, in this order: that part of the weights
// of the next products which it will take.
type fetches [][][]byte

// place is how far a worker has come, which only it reads and writes.
type place struct {
	in        *fetches
	part, off int
	_         [128 - 24]byte // cache lines of its own
}

const (
	aheadMost = 256 << 10 // bytes for each worker: its second-level cache has room for more
	aheadBite = 2 << 10   // bytes at a time: a tenth of a microsecond
	aheadRows = 8         // products of more rows have other things to do than to wait for memory
)

func newAhead(e *gemm.Engine, workers int) *ahead {
	return &ahead{engine: e, at: make([]place, workers)}
}

// bite fetches a little for a worker and reports whether there was anything.
func (a *ahead) bite(worker int) bool {
	next, p := a.next.Load(), &a.at[worker]
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
	if !a.engine.FetchBytes(rest[:min(len(rest), aheadBite)]) {
		return false
	}
	if p.off += aheadBite; p.off >= len(parts[p.part]) {
		p.part, p.off = p.part+1, 0
	}
	return true
}

// plan is what to fetch while each step of a program runs, made when the places
// of the weights change.
type plan struct {
	weights [][]ir.Ref // of the products of each step
	steps   []*fetches // while step i runs
	first   []*byte    // of each weight, when steps was made
	made    bool
}

// newPlan finds the weights that the products of each step read row by row.
func newPlan(steps []step) *plan {
	p := &plan{weights: make([][]ir.Ref, len(steps)), steps: make([]*fetches, len(steps))}
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

// update makes the steps anew where weights have moved.
func (p *plan) update(r *run, steps []step) {
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
	case rows > aheadRows:
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

// after is what to fetch while step i runs: weights of the steps behind it, at
// the end those of the first ones, for the next token.
func (p *plan) after(r *run, i int) *fetches {
	workers := r.dev.pool.Workers()
	f := make(fetches, workers)
	bytes := 0
	for n := 1; n < len(p.weights) && bytes < aheadMost*workers; n++ {
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
				lo, hi = max(0, lo), min(len(b), hi, lo+aheadMost)
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
