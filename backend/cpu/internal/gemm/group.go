package gemm

// group distributes the tasks of several calls with few rows to the workers at once, so that the workers start and
// stop only once: see RunAll.
type group struct {
	jobs []*job
	last []int // of each job: tasks of the group up to its own
	task func(i int)
}

// RunAll computes calls that do not depend on each other, such as q, k and v of one x. Results are bit-equal to
// Run's.
func (e *Engine) RunAll(calls []*Call) {
	few := len(calls) > 1 && e.pool.Workers() > 1
	flops := 0
	for i := 0; few && i < len(calls); i++ {
		c := calls[i]
		s := e.shapeOf(c)
		few = c.M <= rowsFew && !s.isLongK() && !s.fitsInvariantPanels()
		flops += c.flops()
	}
	if few && flops >= serialFlops && e.groups.TryLock() {
		defer e.groups.Unlock()
		e.group.run(e, calls)
		return
	}
	if len(calls) == 0 {
		return
	}
	j := e.job(calls[0])
	for _, c := range calls { // with one job, which keeps what they have in common
		j.next(c)
	}
	e.release(j)
}

// next computes a call after others.
func (j *job) next(c *Call) {
	c.check()
	j.c = c
	j.e.divideWork(j)
	j.run()
}

// run computes calls of at most rowsFew rows.
func (g *group) run(e *Engine, calls []*Call) {
	g.reserve(e, len(calls), 0, 0)
	tasks := 0
	for i, c := range calls {
		c.check()
		j := g.jobs[i]
		j.c, j.workers = c, e.pool.Workers()
		if c.M > 0 && c.N > 0 {
			tasks += j.divideFew()
		}
		g.last[i] = tasks
	}
	e.pool.Run(tasks, g.task)
	for i := range calls {
		g.jobs[i].whole.end(g.jobs[i])
		g.jobs[i].c = nil
	}
}

// divideFew readies a call of at most rowsFew rows and returns the number of its tasks, each
// of which few runs.
func (j *job) divideFew() int {
	w := j.choose().way
	if blocks, ok := w.(rowBlocksWay); ok { // they are one
		w = blocks.of
	}
	j.whole.begin(j)
	switch w.(type) {
	case tilesWay:
		j.few = j.tilesTransposed.task
		return j.tilesTransposed.divide()
	case rowsInPlaceWay:
		j.few = j.rowsInPlace.task
		return j.rowsInPlace.divide()
	}
	j.few = j.fewRows.task
	return j.fewRows.divide()
}

// reserve reserves memory for calls calls that pack floats floats each, and keep whole floats of C.
func (g *group) reserve(e *Engine, calls, floats, whole int) {
	if g.task == nil {
		g.task = g.runTask
	}
	for len(g.jobs) < calls {
		g.jobs, g.last = append(g.jobs, newJob(e)), append(g.last, 0)
	}
	for _, j := range g.jobs[:calls] {
		j.memory.alloc(floats)
		j.whole.data.alloc(whole)
	}
}

// runTask runs task i of the group.
func (g *group) runTask(i int) {
	first := 0
	for n, last := range g.last {
		if i < last {
			g.jobs[n].few(i - first)
			return
		}
		first = last
	}
}
