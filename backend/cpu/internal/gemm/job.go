package gemm

import "unsafe"

// job is one Call on its way. Its functions for the pool are made once, so
// that a run allocates nothing.
type job struct {
	e *Engine
	k *kernels

	c       *Call
	workers int      // to share the work among
	local   *scratch // of the only worker, or nil to borrow
	memory  buffer   // for what the call packs once

	packed  packed
	fewRows fewRows
	fewCols fewCols
	flipped flipped
	turned  turned
	grid    grid
	deep    deep
	inRows  inRows
	whole   whole

	few        func(i int) // see divideFew
	finishTask func(i int) // see finishRange
}

// usualPairs is how many pairs a call can have without a job making room.
const usualPairs = 8

func newJob(e *Engine) *job {
	j := &job{e: e, k: e.k}
	j.finishTask = j.finishRange
	j.packed.bind(j)
	j.fewRows.bind(j)
	j.fewCols.bind(j)
	j.flipped.bind(j)
	j.turned.bind(j)
	j.grid.bind(j)
	j.deep.bind(j)
	j.inRows.bind(j)
	j.whole.bind()
	return j
}

// run computes the call.
func (j *job) run() {
	c := j.c
	if c.M == 0 || c.N == 0 {
		return
	}
	j.packed.before, j.packed.kept = j.packed.kept, kept{} // all ways take the same memory
	w := j.way()
	if !j.filters(w) {
		panic("gemm: a filter of an operand that is not multiplied while in cache: ask Filters first")
	}
	if w == &j.packed {
		w.run()
		return
	}
	j.whole.begin(j)
	if c = j.c; w == nil {
		c.initialize(0, c.M, 0, c.N)
	} else {
		w.run()
	}
	if c.Filter != nil {
		j.spread(ceil(c.M, finishRows), j.finishTask)
	}
	j.whole.end(j)
}

// finishRows is how many rows of C are filtered at a time.
const finishRows = 16

// finishRange applies the filter of C to the rows of task i.
func (j *job) finishRange(i int) {
	j.c.finish(i*finishRows, min(j.c.M, (i+1)*finishRows), 0, j.c.N)
}

// way is one of those to compute a call.
type way interface{ run() }

// way is the one that the call takes, or nil if nothing is multiplied. It
// decides the order of summation, and so depends on the call alone.
func (j *job) way() way {
	c := j.c
	depth, direct, transposed, inPlace, quantized := 0, true, true, true, false
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		depth += p.K
		direct = direct && j.e.direct(&p.A) && !p.A.Trans
		transposed = transposed && p.A.Trans
		inPlace = inPlace && p.A.Elem == F32 && p.A.Trans && !p.B.Trans
		quantized = quantized || p.B.Elem.Quantized()
	}
	switch {
	case depth == 0:
		return nil
	case j.e.byRow(c):
		return &j.inRows
	case j.turned.takes(c):
		return &j.turned
	case j.k.takes(c, j.e.Rounds()):
		return &j.grid
	case c.deepens():
		if j.e.Rounds() && j.k.pairs.inTiles() && c.M > rowsFew {
			return &j.packed // by tiles, which is faster, packing and all
		}
		return &j.deep
	case c.M <= rowsFew || j.k.walks(c, j.e.Rounds()):
		return &j.fewRows
	case quantized:
		return &j.packed
	case inPlace && c.M <= rowsInPlace:
		return &j.fewRows
	case c.N <= j.k.blockMost(j.e.Rounds()) && depth >= 192 && direct:
		return &j.fewCols
	case c.N <= colsThin && transposed && c.M > 2*colsThin:
		return &j.flipped
	}
	return &j.packed
}

// spread runs n tasks on the workers of the job.
func (j *job) spread(n int, task func(i int)) {
	if j.workers > 1 {
		j.e.pool.Run(n, task)
		return
	}
	for i := range n {
		task(i)
	}
}

// shares is into how many tasks to divide the work, given how many each
// worker should get.
func (j *job) shares(each int) int {
	if j.workers == 1 {
		return 1
	}
	return each * j.workers
}

// scratch is memory for the running task. Give it back by release.
func (j *job) scratch() *scratch {
	if j.local != nil {
		return j.local
	}
	return j.e.borrow()
}

func (j *job) release(s *scratch) {
	if j.local == nil {
		j.e.giveBack(s)
	}
}

// initialize sets rows [m0,m1) and columns [n0,n1) of C to what the products
// are added to.
func (c *Call) initialize(m0, m1, n0, n1 int) {
	for i := m0; i < m1; i++ {
		row := c.C[i*c.LDC+n0 : i*c.LDC+n1]
		switch {
		case c.Accumulate && c.Bias != nil:
			for j, b := range c.Bias[n0:n1] {
				row[j] += b
			}
		case c.Accumulate:
		case c.Bias != nil:
			copy(row, c.Bias[n0:n1])
		default:
			clear(row)
		}
	}
}

// biasAt is the address of Bias[n], or nil.
func (c *Call) biasAt(n int) unsafe.Pointer {
	if c.Bias == nil {
		return nil
	}
	return floats(c.Bias, n)
}

// ceil is a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// upTo is n rounded up to a multiple of unit.
func upTo(n, unit int) int { return ceil(n, unit) * unit }

// padded is k rounded up to whole vectors of any instruction set.
func padded(k int) int { return upTo(k, 16) }

// stretchOf divides a k axis evenly into stretches of at most most.
func stretchOf(depth, most int) int {
	const unroll = 8
	n := ceil(depth, most)
	return ceil(ceil(depth, n), unroll) * unroll
}
