package attention

import (
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
)

// decodeStep is how many keys go by at a time where several heads or queries
// read them: so few that they stay in the first-level cache even when the
// distance between them is a power of two.
const decodeStep = 512

// decodeRows is the number of pairs of a query and a head whose scores over a
// chunk fit the memory of a worker.
const decodeRows = tileQueries * tileKeys / decodeKeys

// decodeChunk computes the queries of a short segment over one chunk of keys,
// for all heads of the group of key head kv.
func (e *run) decodeChunk(w *worker, c chunk, kv int) {
	rows := (c.q1 - c.q0) * e.group()
	for first := 0; first < rows; first += decodeRows {
		e.decodePairs(w, c, kv, first, min(first+decodeRows, rows))
	}
}

// decodePairs is decodeChunk for pairs [first,last). Keys and values go by
// once, each read by one pair after the other.
func (e *run) decodePairs(w *worker, c chunk, kv, first, last int) {
	d := e.HeadDim
	step := decodeStep
	if last-first == 1 {
		step = decodeKeys // long runs stream best
	}
	// For each pair: its query and head, what it sees of keys [k,k+step), and
	// the place of its scores.
	each := func(k int, f func(i, h, a, b int, scores []float32)) {
		for n := first; n < last; n++ {
			i, h := c.q0+n/e.group(), kv*e.group()+n%e.group()
			scores := w.scores[(n-first)*decodeKeys:][:decodeKeys]
			if a, b := e.clip(i, k, min(k+step, c.k1)); a < b {
				f(i, h, k+a, k+b, scores[k+a-c.k0:k+b-c.k0])
			}
		}
	}
	for k := c.k0; k < c.k1; k += step {
		each(k, func(i, h, a, b int, scores []float32) {
			vec.DotRows(scores, e.q.from(i, h*d)[:d], e.k.from(a, kv*d), e.k.Stride)
		})
	}
	for n := first; n < last; n++ {
		i, h := c.q0+n/e.group(), kv*e.group()+n%e.group()
		m, l := negInf, float32(0)
		if a, b := e.clip(i, c.k0, c.k1); a < b {
			s := w.scores[(n-first)*decodeKeys:][a:b]
			vec.Scale(s, e.Scale, s)
			m = vec.Max(s)
			l = vec.ExpSum(s, s, 1, m)
		}
		w.max[n-first], w.sum[n-first] = m, l
		clear(e.target(c, i, h))
	}
	for k := c.k0; k < c.k1; k += step {
		each(k, func(i, h, a, b int, scores []float32) {
			vec.AddRows(e.target(c, i, h), scores, e.v.from(a, kv*d), e.v.Stride)
		})
	}
	for n := first; n < last; n++ {
		i, h := c.q0+n/e.group(), kv*e.group()+n%e.group()
		if m, l := w.max[n-first], w.sum[n-first]; c.of == 1 {
			e.finish(i, h, m, l)
		} else {
			_, stat := e.partialRow(c, i, h)
			stat[0], stat[1] = m, l
		}
	}
}

// target is where a chunk adds up the values for one query and head: the
// result itself if there is nothing to merge.
func (e *run) target(c chunk, i, h int) []float32 {
	if c.of == 1 {
		return e.o.from(i, h*e.HeadDim)[:e.HeadDim]
	}
	o, _ := e.partialRow(c, i, h)
	return o
}

// partialRow is where a chunk leaves its part of one query and head: the sum
// of values, and the largest score with the sum of exponentials.
func (e *run) partialRow(c chunk, i, h int) (o, stat []float32) {
	d := e.HeadDim
	row := e.partial[(c.partial+(i-c.q0)*e.QHeads+h)*(d+2):][:d+2]
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
