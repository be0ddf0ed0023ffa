package attention

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/vec"
)

// Gradients are the matrices that Backward overwrites. None may overlap
// another or an argument.
type Gradients struct {
	Q, K, V Rows
}

// Backward sets grad to the gradients of Forward, given dO, the gradient of
// its result, and o and lse as Forward computed them. With P the softmax:
//
//	dV = Pᵀ·dO    dS = P∘(dO·Vᵀ − Σ dO∘o)    dQ = Scale·dS·K    dK = Scale·dSᵀ·Q
//
// P is computed again from the scores and lse. Keys that no query sees get 0.
// Query heads of one group are added in ascending order.
func (e *Engine) Backward(s *Spec, grad Gradients, dO, q, k, v, o Rows, lse []float32) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.Page != 0 {
		return fmt.Errorf("%w: no gradients of keys in pages", ErrShape)
	}
	if err := s.checkRows([]Rows{q, o, dO, grad.Q}, []Rows{k, v, grad.K, grad.V}); err != nil {
		return err
	}
	if want := s.queries() * s.QHeads; len(lse) < want {
		return fmt.Errorf("%w: lse has %d elements, want %d", ErrShape, len(lse), want)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.run.arguments = arguments{Spec: s, q: q, k: k, v: v, o: o, lse: lse, dO: dO, grad: grad}
	e.run.backward()
	e.run.arguments = arguments{}
	return nil
}

func (e *run) backward() {
	e.widenWith(e.HeadDim)
	e.divide(e.Spec, false)
	e.divideKeys()
	e.delta = grow(e.delta, e.queries()*e.QHeads)
	rows := max(e.queries(), e.Keys)
	e.pool.RunWorker((rows+rowsPerTask-1)/rowsPerTask, e.tasks.delta)
	if e.wholeSequences() {
		e.pool.RunWorker(len(e.sequences)*e.KVHeads, e.tasks.sequence)
	} else {
		e.pool.RunWorker(len(e.keyTiles)*e.KVHeads, e.tasks.keys)
		e.pool.RunWorker(len(e.tiles)*e.QHeads, e.tasks.queries)
	}
}

const rowsPerTask = 32

// deltaTask computes Σ dO·o for some rows and clears their gradients.
func (e *run) deltaTask(id, n int) {
	w, d := &e.workers[id], e.HeadDim
	for i := n * rowsPerTask; i < (n+1)*rowsPerTask; i++ {
		if i < e.queries() {
			for h := range e.QHeads {
				e.delta[i*e.QHeads+h] = vec.Dot(e.dO.row(w.wide, i, h*d, d), e.o.row(w.out, i, h*d, d))
			}
			clear(e.grad.Q.from(i, 0)[:e.QHeads*d])
		}
		if i < e.Keys {
			clear(e.grad.K.from(i, 0)[:e.KVHeads*d])
			clear(e.grad.V.from(i, 0)[:e.KVHeads*d])
		}
	}
}

// wholeSequences reports whether each task computes all three gradients of a sequence and key head, with five matrix
// multiplications per tile. If such tasks are too few for the workers, tasks compute dK and dV by keys and then dQ by
// queries, with seven. Both give the same bits, because they add the same tile products in the same order.
func (e *run) wholeSequences() bool {
	total, largest := 0, 0
	for i := range e.sequences {
		cost := 0
		for _, t := range e.tiles[e.firstTile[i]:e.firstTile[i+1]] {
			cost += (t.q1 - t.q0) * (t.k1 - t.k0)
		}
		total += cost
		largest = max(largest, cost)
	}
	workers := e.pool.Workers()
	tasks := len(e.sequences) * e.KVHeads
	longest := max(largest*((tasks+workers-1)/workers), total*e.KVHeads/workers)
	return 5*longest <= 7*(total*e.KVHeads/workers)
}

// sequenceTask computes the gradients of one sequence and key head.
func (e *run) sequenceTask(id, i int) {
	seq, kv := i/e.KVHeads, i%e.KVHeads
	for _, keys := range e.keyTiles[e.firstKeyTile[seq]:e.firstKeyTile[seq+1]] {
		e.alongQueries(id, keys, kv, true)
	}
}

// keyTask computes dK and dV of one tile of keys and key head.
func (e *run) keyTask(id, i int) {
	e.alongQueries(id, e.keyTiles[i/e.KVHeads], i%e.KVHeads, false)
}

// alongQueries adds the contributions of all queries of the sequence to dK and dV of a tile of keys and, with withQ,
// the contributions of these keys to dQ.
func (e *run) alongQueries(id int, keys keyTile, kv int, withQ bool) {
	for h := kv * e.group(); h < (kv+1)*e.group(); h++ {
		for _, t := range e.tiles[e.firstTile[keys.seq]:e.firstTile[keys.seq+1]] {
			if t.k0 > keys.k0 || keys.k0 >= t.k1 {
				continue
			}
			part := e.part(t, keys.k0)
			if part.q0 == part.q1 {
				continue
			}
			e.scoreGrad(id, part, h)
			e.addKeyGrads(id, part, h)
			if withQ {
				e.addQueryGrad(id, part, h)
			}
		}
	}
}

// queryTask computes dQ of one tile for one query head.
func (e *run) queryTask(id, i int) {
	n := len(e.tiles)
	t, h := e.tiles[n-1-i%n], i/n
	for k := t.k0; k < t.k1; k += tileKeys {
		if part := e.part(t, k); part.q0 < part.q1 {
			e.scoreGrad(id, part, h)
			e.addQueryGrad(id, part, h)
		}
	}
}

// scoreGrad sets the tile of scores to P and the tile of grads to dS.
func (e *run) scoreGrad(id int, t tile, h int) {
	w, d := &e.workers[id], e.HeadDim
	e.score(id, t, h)
	e.product(id, gemm.Call{
		M: t.q1 - t.q0, N: t.k1 - t.k0,
		C: w.grads[:], LDC: tileKeys,
	}, gemm.Pair{
		A: e.dO.matrix(t.q0, h*d),
		B: e.v.matrix(t.k0, h/e.group()*d).T(),
		K: d, Alpha: 1,
	})
	for r := range t.q1 - t.q0 {
		i := t.q0 + r
		p := w.scores[r*tileKeys:][:t.k1-t.k0]
		ds := w.grads[r*tileKeys:][:t.k1-t.k0]
		a, b := e.clip(i, t.k0, t.k1)
		if a >= b {
			clear(p)
			clear(ds)
			continue
		}
		clear(p[:a])
		clear(p[b:])
		clear(ds[:a])
		clear(ds[b:])
		p, ds = p[a:b], ds[a:b]
		slope := w.slope[:b-a]
		if e.adjusts() {
			e.adjust(p, slope, h, i, t.k0+a)
		}
		vec.ExpAffine(p, p, 1, e.lse[i*e.QHeads+h], 1)
		vec.ScoreGrad(ds, p, ds, e.delta[i*e.QHeads+h], 1)
		if e.SoftCap > 0 {
			vec.Mul(ds, ds, slope)
		}
	}
}

// addKeyGrads adds Pᵀ·dO to dV and Scale·dSᵀ·Q to dK.
func (e *run) addKeyGrads(id int, t tile, h int) {
	w, d := &e.workers[id], e.HeadDim
	kv := h / e.group() * d
	n, m := t.k1-t.k0, t.q1-t.q0
	e.product(id, gemm.Call{
		M: n, N: d, C: e.grad.V.from(t.k0, kv), LDC: e.grad.V.Stride, Accumulate: true,
	}, gemm.Pair{
		A: gemm.Of(w.scores[:], tileKeys).T(),
		B: e.dO.matrix(t.q0, h*d),
		K: m, Alpha: 1,
	})
	e.product(id, gemm.Call{
		M: n, N: d, C: e.grad.K.from(t.k0, kv), LDC: e.grad.K.Stride, Accumulate: true,
	}, gemm.Pair{
		A: gemm.Of(w.grads[:], tileKeys).T(),
		B: e.q.matrix(t.q0, h*d),
		K: m, Alpha: e.Scale,
	})
}

// addQueryGrad adds Scale·dS·K to dQ.
func (e *run) addQueryGrad(id int, t tile, h int) {
	d := e.HeadDim
	e.product(id, gemm.Call{
		M: t.q1 - t.q0, N: d, C: e.grad.Q.from(t.q0, h*d), LDC: e.grad.Q.Stride, Accumulate: true,
	}, gemm.Pair{
		A: gemm.Of(e.workers[id].grads[:], tileKeys),
		B: e.k.matrix(t.k0, h/e.group()*d),
		K: t.k1 - t.k0, Alpha: e.Scale,
	})
}
