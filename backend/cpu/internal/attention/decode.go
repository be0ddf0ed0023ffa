package attention

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/vec"
)

const (
	// decodeHeads is the number of heads whose scores over a chunk are held at a time:
	// 32 KiB, which stay in the nearest cache.
	decodeHeads = 16
	// decodeBlock is the number of keys that all heads of a task read before they move on to the next block, which is
	// prefetched meanwhile: a cache row has all heads, so a single head reads with gaps that hardware prefetchers
	// handle badly.
	decodeBlock = 64
)

// headsOfTask returns the number of key heads per decoding task, such that each worker gets several tasks.
func (e *run) headsOfTask() int {
	return max(1, min(e.KVHeads, len(e.chunks)*e.KVHeads/(2*e.pool.Workers())))
}

// tasksOfChunk returns the number of tasks that a chunk is divided into.
func (e *run) tasksOfChunk() int { return (e.KVHeads + e.taskHeads - 1) / e.taskHeads }

// decodeChunk computes the queries of a short sequence over one chunk of keys,
// for the groups of key heads [kv0,kv1).
func (e *run) decodeChunk(w *worker, c chunk, kv0, kv1 int) {
	step := decodeHeads
	if e.group() < decodeHeads {
		step -= decodeHeads % e.group()
	}
	last := kv1 * e.group()
	for i := c.q0; i < c.q1; i++ {
		for h := kv0 * e.group(); h < last; h += step {
			e.decodeGroup(w, c, i, h, min(step, last-h))
		}
	}
}

// decodeGroup computes n heads from h on of query i over a chunk. Heads with the same key head share each read of its
// rows.
func (e *run) decodeGroup(w *worker, c chunk, i, h, n int) {
	d := e.HeadDim
	o, oStride := w.out, d
	switch {
	case c.chunks > 1:
		o, oStride = e.partialRows(c, i, h), d+2
	case e.o.BF16 == nil:
		o = e.o.from(i, h*d)
	}
	for g := range n {
		clear(o[g*oStride:][:d])
	}
	a, b := e.clip(i, c.k0, c.k1)
	step := e.blockRows(h, n)
	for j := a; j < b; j += step {
		if j+step < b {
			e.fetch(e.k, c.k0+j+step, min(step, b-j-step), h, n)
		} else if j > a {
			e.fetch(e.v, c.k0+a, step, h, n)
		}
		for at, end := j, min(j+step, b); at < end; {
			keys := e.block(w, e.k, c.k0+at, end-at, h, n)
			for g := 0; g < n; {
				keys, heads := keys.head(e, h+g, n-g)
				keys.Dot(w.scores[g*decodeKeys+at-a:], decodeKeys, e.q.row(w.query, i, (h+g)*d, heads*d), d, heads)
				g += heads
			}
			at += keys.count
		}
	}
	for g := range n {
		m, l := negInf, float32(0)
		if a < b {
			s := w.scores[g*decodeKeys:][:b-a]
			vec.Scale(s, e.Scale, s)
			if e.adjusts() {
				e.adjust(s, nil, h+g, i, c.k0+a)
			}
			m = vec.Max(s)
			l = vec.ExpSum(s, s, 1, m)
		}
		w.max[g], w.sum[g] = m, l
	}
	for j := a; j < b; j += step {
		if j+step < b {
			e.fetch(e.v, c.k0+j+step, min(step, b-j-step), h, n)
		}
		for at, end := j, min(j+step, b); at < end; {
			values := e.block(w, e.v, c.k0+at, end-at, h, n)
			for g := 0; g < n; {
				values, heads := values.head(e, h+g, n-g)
				values.AddTo(o[g*oStride:], oStride, w.scores[g*decodeKeys+at-a:], decodeKeys, heads)
				g += heads
			}
			at += values.count
		}
	}
	for g := range n {
		if c.chunks > 1 {
			o[g*oStride+d], o[g*oStride+d+1] = w.max[g], w.sum[g]
		} else {
			e.finish(o[g*d:][:d], i, h+g, w.max[g], w.sum[g])
		}
	}
}

// keyBlock is rows of some key heads, from head first on.
type keyBlock struct {
	rows          []float32
	stride, count int
	first         int
}

// block returns the rows of at most count keys, from key first on, of the key heads of n heads from h on, as far as
// the rows are contiguous. bfloat16 rows are widened: all heads at once, in runs as long as possible.
func (e *run) block(w *worker, r Rows, first, count, h, n int) keyBlock {
	first, count = e.place(first, count)
	if r.BF16 == nil {
		return keyBlock{r.from(first, 0), r.Stride, count, 0}
	}
	kv0, kv1 := e.keyHeads(h, n)
	width := (kv1 - kv0) * e.HeadDim
	if width == r.Stride {
		r.row(w.wide, first, 0, count*width)
	} else {
		for j := range count {
			r.row(w.wide[j*width:], first+j, kv0*e.HeadDim, width)
		}
	}
	return keyBlock{w.wide, width, count, kv0}
}

// head returns the rows of the key head of head h, and the number of heads, of n from h on, that share it.
func (b keyBlock) head(e *run, h, n int) (p vec.Panel, heads int) {
	kv, d := h/e.group(), e.HeadDim
	return vec.Panel{Rows: b.rows[(kv-b.first)*d:], Stride: b.stride, Width: d, Count: b.count}, min(n, (kv+1)*e.group()-h)
}

// keyHeads returns the range of key heads of n heads from h on.
func (e *run) keyHeads(h, n int) (kv0, kv1 int) { return h / e.group(), (h+n-1)/e.group() + 1 }

// blockRows returns the number of keys that n heads from h on read per block. For bfloat16 the widened keys fit the
// first-level cache.
func (e *run) blockRows(h, n int) int {
	if e.k.BF16 == nil && e.v.BF16 == nil {
		return decodeBlock
	}
	kv0, kv1 := e.keyHeads(h, n)
	return max(wideRows, min(decodeBlock, wideFloats/((kv1-kv0)*e.HeadDim)))
}

// Limits of widened keys: floats in all, but at least this number of rows.
const (
	wideFloats = 8 << 10
	wideRows   = 8
)

// fetch prefetches count keys from key first on, of the key heads of n heads from h on.
func (e *run) fetch(r Rows, first, count, h, n int) {
	for end := first + count; first < end; {
		row, follow := e.place(first, end-first)
		e.fetchRows(r, row, follow, h, n)
		first += follow
	}
}

// fetchRows prefetches contiguous rows.
func (e *run) fetchRows(r Rows, first, count, h, n int) {
	kv0, kv1 := e.keyHeads(h, n)
	width := (kv1 - kv0) * e.HeadDim
	if width == r.Stride {
		count, width = 1, count*width
	}
	for j := range count {
		if r.BF16 != nil {
			e.gemm.FetchBytes(r.bytes(first+j, kv0*e.HeadDim, width))
		} else {
			e.gemm.Fetch(r.from(first+j, kv0*e.HeadDim)[:width])
		}
	}
}

// partialRows returns the partial results of a chunk for one query and the heads from h on: per head the sum of
// values, the largest score and the sum of exponentials.
func (e *run) partialRows(c chunk, i, h int) []float32 {
	return e.partial[(c.partial+(i-c.q0)*e.QHeads+h)*(e.HeadDim+2):]
}

// partialRow returns the partial result of one head.
func (e *run) partialRow(c chunk, i, h int) (o, stat []float32) {
	d := e.HeadDim
	row := e.partialRows(c, i, h)[:d+2]
	return row[:d], row[d:]
}

// finish divides o, the sum of values, by the sum of exponentials.
func (e *run) finish(o []float32, i, h int, m, l float32) {
	if a, b := e.bounds(i); a >= b {
		return // clearEmpty wrote it
	}
	vec.Scale(o, 1/l, o)
	e.o.storeBF16(o, i, h*e.HeadDim)
	e.lse[i*e.QHeads+h] = float32(float64(m) + math.Log(float64(l)))
}

// merge adds up the chunks of each sequence that was cut, in ascending order.
func (e *run) merge() {
	for n := 0; n < len(e.chunks); n += e.chunks[n].chunks {
		if first := e.chunks[n]; first.chunks > 1 {
			for i := first.q0; i < first.q1; i++ {
				for h := range e.QHeads {
					e.mergeRow(e.chunks[n:n+first.chunks], i, h)
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
	o := e.outRow(&e.workers[0], i, 0, h)
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
	e.finish(o, i, h, largest, total)
}
