package attention

import (
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
)

// decodeChunk computes the queries of a short segment over one chunk of keys,
// for all heads of the group of key head kv. The chunk stays in the cache of
// the core while one head after the other reads it.
func (e *run) decodeChunk(w *worker, c chunk, kv int) {
	d, g := e.HeadDim, e.group()
	for i := c.q0; i < c.q1; i++ {
		a, b := e.clip(i, c.k0, c.k1)
		for h := kv * g; h < (kv+1)*g; h++ {
			o := e.o.from(i, h*d)[:d]
			if c.of > 1 {
				o, _ = e.partialRow(c, i, h)
			}
			clear(o)
			m, l := negInf, float32(0)
			if a < b {
				s := w.scores[:b-a]
				vec.DotRows(s, e.q.from(i, h*d)[:d], e.k.from(c.k0+a, kv*d), e.k.Stride)
				vec.Scale(s, e.Scale, s)
				m = vec.Max(s)
				l = vec.ExpSum(s, s, 1, m)
				vec.AddRows(o, s, e.v.from(c.k0+a, kv*d), e.v.Stride)
			}
			if c.of > 1 {
				_, stat := e.partialRow(c, i, h)
				stat[0], stat[1] = m, l
			} else {
				e.finish(i, h, m, l)
			}
		}
	}
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
	d := e.HeadDim
	largest := negInf
	for _, c := range chunks {
		_, stat := e.partialRow(c, i, h)
		largest = max(largest, stat[0])
	}
	o := e.o.from(i, h*d)[:d]
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
