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
	memory  buffer   // for operands that the call packs once

	shape shape  // of the call
	on    *route // that it takes

	panels          panels
	fewRows         fewRows
	fewColumns      fewColumns
	transposeResult transposeResult
	tilesTransposed tilesTransposed
	rowsInPlace     rowsInPlace
	longK           longK
	rowBlocks       rowBlocks
	whole           whole

	few        func(i int) // see divideFew
	finishTask func(i int) // see finishRange
}

// usualPairs is the number of pairs that a job can hold without allocating.
const usualPairs = 8

func newJob(e *Engine) *job {
	j := &job{e: e, k: e.k}
	j.finishTask = j.finishRange
	j.panels.bind(j)
	j.fewRows.bind(j)
	j.fewColumns.bind(j)
	j.transposeResult.bind(j)
	j.tilesTransposed.bind(j)
	j.rowsInPlace.bind(j)
	j.longK.bind(j)
	j.rowBlocks.bind(j)
	j.whole.bind()
	return j
}

// choose finds the route of the call.
func (j *job) choose() *route {
	j.shape = j.e.shapeOf(j.c)
	j.on = j.shape.route()
	return j.on
}

// run computes the call.
func (j *job) run() {
	c := j.c
	if c.M == 0 || c.N == 0 {
		return
	}
	j.panels.before, j.panels.kept = j.panels.kept, kept{} // all ways take the same memory
	r := j.choose()
	if !j.shape.filters(r) {
		panic("gemm: a filter of an operand that is not multiplied while in cache: ask Filters first")
	}
	if r.way == (panelsWay{}) {
		r.way.run(j)
		return
	}
	j.whole.begin(j)
	r.way.run(j)
	if j.c.Filter != nil {
		j.spread(ceil(j.c.M, finishRows), j.finishTask)
	}
	j.whole.end(j)
}

// nothingWay is for calls without a product. One whose C is stored in fewer bits takes memory
// for all of it, which is not reserved: there is no use for such calls.
type nothingWay struct{}

func (nothingWay) need(*shape) Scratch { return Scratch{} }
func (nothingWay) run(j *job)          { j.c.initialize(0, j.c.M, 0, j.c.N) }

// finishRows is the number of rows of C that are filtered at a time.
const finishRows = 16

// finishRange applies the filter of C to the rows of task i.
func (j *job) finishRange(i int) {
	j.c.finish(i*finishRows, min(j.c.M, (i+1)*finishRows), 0, j.c.N)
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

// shares returns the number of tasks to divide the work into, given the number per worker.
func (j *job) shares(each int) int {
	if j.workers == 1 {
		return 1
	}
	return each * j.workers
}

// scratch returns memory for the running task, to be returned with release.
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

// initialize sets rows [m0,m1) and columns [n0,n1) of C to their initial value, before products are added.
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

// biasAt returns the address of Bias[n], or nil.
func (c *Call) biasAt(n int) unsafe.Pointer {
	if c.Bias == nil {
		return nil
	}
	return floats(c.Bias, n)
}

// ceil returns a/b rounded up.
func ceil(a, b int) int { return (a + b - 1) / b }

// upTo returns n rounded up to a multiple of unit.
func upTo(n, unit int) int { return ceil(n, unit) * unit }

// padded returns k rounded up to whole vectors of any instruction set.
func padded(k int) int { return upTo(k, 16) }

// stretchOf returns the length of equal blocks of at most most elements that a k axis is divided into.
func stretchOf(depth, most int) int {
	const unroll = 8
	n := ceil(depth, most)
	return ceil(ceil(depth, n), unroll) * unroll
}
