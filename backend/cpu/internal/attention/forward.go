package attention

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/vec"
)

var negInf = float32(math.Inf(-1))

// Forward computes o = softmax(Scale·q·kᵀ)·v, and lse, [queries, QHeads], the logarithm of the sum of the
// exponentials of the scaled scores, which Backward needs. o must not overlap q, k or v.
//
// Sequences of at most 8 queries (decoding) stream over their keys. If they are long, chunks of keys are computed
// separately and merged in order.
func (e *Engine) Forward(s *Spec, o Rows, lse []float32, q, k, v Rows) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := s.checkRows([]Rows{q, o}, []Rows{k, v}); err != nil {
		return err
	}
	if want := s.queries() * s.QHeads; len(lse) < want {
		return fmt.Errorf("%w: lse has %d elements, want %d", ErrShape, len(lse), want)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run.arguments = arguments{Spec: s, q: q, k: k, v: v, o: o, lse: lse}
	e.run.forward()
	e.run.arguments = arguments{}
	return nil
}

func (e *run) forward() {
	e.widenWith(e.HeadDim)
	if e.Page > 0 {
		e.gatherWith(e.HeadDim)
	}
	if e.invariant {
		e.forwardInRows()
		return
	}
	e.divide(e.Spec, true)
	e.partial = grow(e.partial, e.partials*(e.HeadDim+2))
	e.clearEmpty()
	e.taskHeads = e.headsOfTask()
	e.pool.RunWorker(len(e.tiles)*e.QHeads+len(e.chunks)*e.tasksOfChunk(), e.tasks.forward)
	e.merge()
}

// clearEmpty sets the results of queries with empty intervals.
func (e *run) clearEmpty() {
	for i := range e.queries() {
		if a, b := e.bounds(i); a >= b {
			e.o.clear(i, e.QHeads*e.HeadDim)
			for h := range e.QHeads {
				e.lse[i*e.QHeads+h] = negInf
			}
		}
	}
}

func (e *run) forwardTask(id, i int) {
	if n := len(e.tiles) * e.QHeads; i >= n {
		i -= n
		kv := i % e.tasksOfChunk() * e.taskHeads
		e.decodeChunk(&e.workers[id], e.chunks[i/e.tasksOfChunk()], kv, min(kv+e.taskHeads, e.KVHeads))
		return
	}
	// Heads of one group are neighbours in time, so that they find their keys
	// in the cache; the longest tiles come first, so that no worker is left
	// with one in the end.
	n := len(e.tiles)
	e.forwardTile(id, e.tiles[n-1-i%n], i/n)
}

// forwardTile computes the rows of a tile for query head h, from left to
// right with a running maximum.
func (e *run) forwardTile(id int, t tile, h int) {
	w := &e.workers[id]
	d := e.HeadDim
	for r := range t.q1 - t.q0 {
		w.max[r], w.sum[r] = negInf, 0
	}
	begun := false
	for k := t.k0; k < t.k1; k += tileKeys {
		part := e.part(t, k)
		if part.q0 == part.q1 {
			continue
		}
		if !begun && part.q1-part.q0 < t.q1-t.q0 {
			for i := t.q0; i < t.q1; i++ {
				clear(e.outRow(w, i, i-t.q0, h))
			}
		}
		e.score(id, part, h)
		for i := part.q0; i < part.q1; i++ {
			e.softmaxRow(w, part, h, i, i-t.q0)
		}
		c := gemm.Call{M: part.q1 - part.q0, N: d, Accumulate: begun}
		if e.o.BF16 != nil {
			c.C, c.LDC = w.out[(part.q0-t.q0)*d:], d
		} else {
			c.C, c.LDC = e.o.from(part.q0, h*d), e.o.Stride
		}
		e.product(id, c, gemm.Pair{
			A: gemm.Of(w.scores[:], tileKeys),
			B: e.tileRows(w, e.v, k, part.k1-part.k0, h/e.group()),
			K: part.k1 - part.k0, Alpha: 1,
		})
		begun = true
	}
	for r := range t.q1 - t.q0 {
		i := t.q0 + r
		o := e.outRow(w, i, r, h)
		if a, b := e.bounds(i); a >= b {
			clear(o) // -0 and NaN·0 out of the tile's products
			e.o.storeBF16(o, i, h*d)
			continue
		}
		vec.Scale(o, 1/w.sum[r], o)
		e.o.storeBF16(o, i, h*d)
		e.lse[i*e.QHeads+h] = float32(float64(w.max[r]) + math.Log(float64(w.sum[r])))
	}
}

// part returns the part of tile t that sees keys from k on, at most tileKeys of them. Queries before the first and
// after the last one that see a key are omitted, except for filling whole tiles of the multiplications.
func (e *run) part(t tile, k int) tile {
	const whole = 32
	p := tile{t.q0, t.q1, k, min(k+tileKeys, t.k1)}
	sees := func(i int) bool { a, b := e.clip(i, p.k0, p.k1); return a < b }
	for p.q0 < p.q1 && !sees(p.q0) {
		p.q0++
	}
	for p.q1 > p.q0 && !sees(p.q1-1) {
		p.q1--
	}
	if p.q0 < p.q1 {
		p.q0 -= (p.q0 - t.q0) % whole
		p.q1 = min(t.q1, t.q0+(p.q1-t.q0+whole-1)/whole*whole)
	}
	return p
}

// clip returns the interval of query i within keys [k0,k1), relative to k0.
func (e *run) clip(i, k0, k1 int) (a, b int) {
	a, b = e.bounds(i)
	return max(a, k0) - k0, min(b, k1) - k0
}

// score sets the tile of scores to Scale·q·kᵀ.
func (e *run) score(id int, t tile, h int) {
	d, w := e.HeadDim, &e.workers[id]
	e.product(id, gemm.Call{
		M: t.q1 - t.q0, N: t.k1 - t.k0,
		C: w.scores[:], LDC: tileKeys,
	}, gemm.Pair{
		A: e.q.matrix(t.q0, h*d),
		B: e.tileRows(w, e.k, t.k0, t.k1-t.k0, h/e.group()).T(),
		K: d, Alpha: e.Scale,
	})
}

// softmaxRow converts the scores of query i, row r of its tile of queries, to exponentials relative to the largest
// score so far, 0 outside its interval, and rescales the earlier sums.
func (e *run) softmaxRow(w *worker, t tile, h, i, r int) {
	row := w.scores[(i-t.q0)*tileKeys:][:t.k1-t.k0]
	a, b := e.clip(i, t.k0, t.k1)
	if a >= b {
		clear(row)
		return
	}
	clear(row[:a])
	clear(row[b:])
	row = row[a:b]
	if e.adjusts() {
		e.adjust(row, nil, h, i, t.k0+a)
	}
	m := max(w.max[r], vec.Max(row))
	if m > w.max[r] && w.max[r] != negInf {
		shrink := float32(math.Exp(float64(w.max[r]) - float64(m)))
		w.sum[r] *= shrink
		o := e.outRow(w, i, r, h)
		vec.Scale(o, shrink, o)
	}
	w.max[r] = m
	w.sum[r] += vec.ExpSum(row, row, 1, m)
}
