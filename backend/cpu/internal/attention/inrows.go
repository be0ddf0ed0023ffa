package attention

// With SetInvariant, every query streams over its own keys as in short sequences, in chunks that start at its Lo. Its
// result depends on its own interval and keys only, bit for bit, and not on the other queries of the batch.

// SetInvariant makes results of Forward independent, bit for bit, of the other queries and their number. It must not
// be called during a call.
func (e *Engine) SetInvariant(on bool) { e.run.invariant = on }

// forwardInRows computes Forward in this mode.
func (e *run) forwardInRows() {
	e.clearEmpty()
	e.chunksOfRow = e.keys()/decodeKeys + 1
	e.partial = grow(e.partial, e.pool.Workers()*e.chunksOfRow*e.QHeads*(e.HeadDim+2))
	for i := range e.workers {
		e.workers[i].chunks = withCapacity(e.workers[i].chunks, e.chunksOfRow)
	}
	e.taskHeads = max(1, min(e.KVHeads, e.queries()*e.KVHeads/(2*e.pool.Workers())))
	e.pool.RunWorker(e.queries()*e.tasksOfChunk(), e.tasks.row)
}

// rowTask computes some heads of a query.
func (e *run) rowTask(id, n int) {
	i, kv := n/e.tasksOfChunk(), n%e.tasksOfChunk()*e.taskHeads
	end := min(kv+e.taskHeads, e.KVHeads)
	a, b := e.bounds(i)
	if a >= b {
		return // clearEmpty wrote it
	}
	w := &e.workers[id]
	origin := int(e.Lo[i])
	first := (a - origin) / decodeKeys
	of := (b-origin-1)/decodeKeys - first + 1
	w.chunks = w.chunks[:0]
	for j := range of {
		c := chunk{sequence: sequence{i, i + 1, origin + (first+j)*decodeKeys, 0}, index: j, chunks: of, partial: (id*e.chunksOfRow + j) * e.QHeads}
		c.k1 = min(c.k0+decodeKeys, b)
		w.chunks = append(w.chunks, c)
		e.decodeChunk(w, c, kv, end)
	}
	if of > 1 {
		for h := kv * e.group(); h < end*e.group(); h++ {
			e.mergeRow(w.chunks, i, h)
		}
	}
}
