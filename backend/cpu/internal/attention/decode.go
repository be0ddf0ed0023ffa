package attention

import (
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
)

// decodeHeads is the number of heads whose scores over a chunk fit the memory
// of a worker.
const decodeHeads = tileQueries * tileKeys / decodeKeys

// decodeChunk computes the queries of a short segment over one chunk of keys,
// for the group of key head kv.
func (e *run) decodeChunk(w *worker, c chunk, kv int) {
	for i := c.q0; i < c.q1; i++ {
		last := (kv + 1) * e.group()
		for h := kv * e.group(); h < last; h += decodeHeads {
			e.decodeGroup(w, c, i, h, min(decodeHeads, last-h))
		}
	}
}

// decodeGroup computes n heads from h on of query i over a chunk. They have
// one key head, of which each row is read once for several of them.
func (e *run) decodeGroup(w *worker, c chunk, i, h, n int) {
	d, kv := e.HeadDim, h/e.group()*e.HeadDim
	o, oStride := e.o.from(i, h*d), d
	if c.of > 1 {
		o, oStride = e.partialRows(c, i, h), d+2
	}
	for g := range n {
		clear(o[g*oStride:][:d])
	}
	a, b := e.clip(i, c.k0, c.k1)
	var keys, values vec.Panel
	if a < b {
		keys = vec.Panel{Rows: e.k.from(c.k0+a, kv), Stride: e.k.Stride, Width: d, Count: b - a}
		values = vec.Panel{Rows: e.v.from(c.k0+a, kv), Stride: e.v.Stride, Width: d, Count: b - a}
	}
	keys.Dot(w.scores[:], decodeKeys, e.q.from(i, h*d), d, n)
	for g := range n {
		m, l := negInf, float32(0)
		if a < b {
			s := w.scores[g*decodeKeys:][:b-a]
			vec.Scale(s, e.Scale, s)
			m = vec.Max(s)
			l = vec.ExpSum(s, s, 1, m)
		}
		w.max[g], w.sum[g] = m, l
	}
	values.AddTo(o, oStride, w.scores[:], decodeKeys, n)
	for g := range n {
		if c.of > 1 {
			o[g*oStride+d], o[g*oStride+d+1] = w.max[g], w.sum[g]
		} else {
			e.finish(i, h+g, w.max[g], w.sum[g])
		}
	}
}

// partialRows is where a chunk leaves its part of one query and the heads
// from h on: for each the sum of values, the largest score and the sum of
// exponentials.
func (e *run) partialRows(c chunk, i, h int) []float32 {
	return e.partial[(c.partial+(i-c.q0)*e.QHeads+h)*(e.HeadDim+2):]
}

// partialRow is the part of one head.
func (e *run) partialRow(c chunk, i, h int) (o, stat []float32) {
	d := e.HeadDim
	row := e.partialRows(c, i, h)[:d+2]
	return row[:d], row[d:]
}

// finish divides the sum of values by the sum of exponentials.
func (e *run) finish(i, h int, m, l float32) {
	if a, b := e.bounds(i); a >= b {
		return // clearEmpty wrote it
	}
	o := e.o.from(i, h*e.HeadDim)[:e.HeadDim]
	vec.Scale(o, 1/l, o)
	e.lse[i*e.QHeads+h] = float32(float64(m) + math.Log(float64(l)))
}

// merge adds up the chunks of each segment that was cut, in ascending order.
func (e *run) merge() {
	for n := 0; n < len(e.chunks); n += e.chunks[n].of {
		if first := e.chunks[n]; first.of > 1 {
			for i := first.q0; i < first.q1; i++ {
				for h := range e.QHeads {
					e.mergeRow(e.chunks[n:n+first.of], i, h)
				}
			}
		}
	}
}

func (e *run) mergeRow(chunks []chunk, i, h int) {
	largest := negInf
	for _, c := range chunks {
		_, stat := e.partialRow(c, i, h)
		largest = max(largest, stat[0])
	}
	o := e.o.from(i, h*e.HeadDim)[:e.HeadDim]
	clear(o)
	total := float32(0)
	for _, c := range chunks {
		part, stat := e.partialRow(c, i, h)
		if stat[1] == 0 {
			continue // the query sees nothing of this chunk
		}
		factor := float32(math.Exp(float64(stat[0]) - float64(largest)))
		vec.Axpy(o, factor, part)
		total += factor * stat[1]
	}
	e.finish(i, h, largest, total)
}
