package gemm

import "slices"

// Scratch is the memory that calls take in passing, in floats.
type Scratch struct {
	Call  int // of a call under way: A and what else is packed once
	Down  int // of B of the downs that it computes
	Inner int // of the call that a flipped one is turned into
	Group int // calls of a RunAll
	Few   int // of each of these
	// Whole is for a C that is stored in fewer bits, FewWhole for that of each of a group.
	Whole, FewWhole int
	Task            TaskScratch
}

// TaskScratch is the memory of one worker: for small pieces, for B, for
// quantised weights on their way, and for a block of C.
type TaskScratch struct{ Small, B, Wide, C int }

// With is enough for both s and t, one after the other.
func (s Scratch) With(t Scratch) Scratch {
	return Scratch{max(s.Call, t.Call), max(s.Down, t.Down), max(s.Inner, t.Inner), max(s.Group, t.Group), max(s.Few, t.Few),
		max(s.Whole, t.Whole), max(s.FewWhole, t.FewWhole),
		TaskScratch{max(s.Task.Small, t.Task.Small), max(s.Task.B, t.Task.B), max(s.Task.Wide, t.Task.Wide), max(s.Task.C, t.Task.C)}}
}

// Bytes is what s takes on the engine's workers.
func (e *Engine) Bytes(s Scratch) int64 {
	return 4 * int64(s.Call+s.Down+s.Inner+s.Group*(s.Few+s.FewWhole)+s.Whole+e.pool.Workers()*(s.Task.Small+s.Task.B+s.Task.Wide+s.Task.C))
}

// Need is the most that c takes, and any call that differs from it only in
// being smaller: it may go another way. Data of c is not looked at.
func (e *Engine) Need(c *Call) Scratch {
	if e.invariant || c.Invariant {
		return e.needByRow(c)
	}
	if e.Rounds() {
		return e.needOf(c, e.k.pairs)
	}
	s := e.needOf(c, e.k)
	for _, kern := range e.k.others(c) {
		s = s.With(e.needOf(c, kern))
	}
	return s
}

// needOf is Need where the packed way takes kern.
func (e *Engine) needOf(c *Call, kern *kernels) Scratch {
	p := packed{job: &job{e: e, k: e.k}, kern: kern}
	depth, apart, rows, cells, cols, longest, widest, wide, parts, words, transposed, filters, widens := 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, true, false, false
	for i := range c.Pairs {
		pair := c.Pairs[i]
		pair.Alpha = 1
		depth += kern.pairWords(&pair)
		if kern.apart(&pair) {
			apart += kern.pairWords(&pair)
		}
		rows += min(c.M, rowsFew)*(padded(pair.K)+splitPadded(pair.K)) + packSlack
		cells += min(c.M, e.k.gridMost) * e.k.gridFloats(pair.K)
		if pair.A.Elem != F32 || pair.A.Trans {
			widest = max(widest, min(c.M, e.k.gridRows)*padded(pair.K)+packSlack)
		}
		cols += padded(min(c.N, colsThin))*padded(pair.K) + 2*e.k.fanLanes
		longest = max(longest, pair.K)
		if pair.B.Elem.Quantized() {
			wide = max(wide, e.widened(c, &pair, p.kern))
		}
		transposed = transposed && pair.A.Trans
		widens = widens || e.widens(&pair.A) || e.widens(&pair.B)
		filters = filters || pair.FilterA != nil || pair.FilterB != nil || widens
		parts += deepParts(pair.K)
		if kern := e.outerKernels(); kern.outer != nil {
			for range deepParts(pair.K) {
				words += kern.outerFloats(min(c.M, rowsInPlace), ceil(pair.K, deepParts(pair.K)))
			}
		}
	}
	block := blockCols
	if kern.inTiles() && transposed {
		block = thinCols
	}
	s := Scratch{
		Call: max(rows, min(c.M*p.kern.panelFloats(depth), max(e.packed, p.kern.mr*p.kern.panelFloats(depth)))+ceil(c.M, p.kern.mr)*(packSlack+1)),
		Task: TaskScratch{
			Small: rowsFew * rowsDots,
			B:     min(ceil(c.N, p.kern.nr)*p.kern.nr, blockCols)*(min(padded(depth), kern.kc)+min(apart, kern.kc)*(kern.pieces-1)) + packSlack,
			Wide:  wide,
		},
	}
	s.Whole, s.Task.C = e.k.wholeFloats(c), kern.blockFloats(c, block)
	if t := kern.turned; t != nil {
		groups, tile := ceil(max(min(c.M, t.most), min(c.N, colsThin)), kern.nr), kern.mr*kern.nr
		s.Call = max(s.Call, groups*kern.nr*kern.panelFloats(depth)+packSlack)
		s.Task = TaskScratch{
			Small: max(s.Task.Small, (groups+1)*tile),
			B:     max(s.Task.B, kern.turnFloats()),
			Wide:  max(s.Task.Wide, turnWhole*kern.pairSize*kern.mr+quantBlock),
			C:     s.Task.C,
		}
	}
	if transposed {
		s.Task.B = max(s.Task.B, min(ceil(c.N, p.kern.nr)*p.kern.nr, block)*min(padded(depth), thinDeep)+packSlack)
		few := min(c.M, rowsInPlace)
		s.Call = max(s.Call, words+(parts-1)*few*c.N)
	}
	if filters {
		if kern.turned != nil {
			s.Task.Wide = max(s.Task.Wide, kern.mr*turnDeep*kern.pairSize)
		}
		s.Task.Wide = max(s.Task.Wide, blockStrip/F32.Size(), 4*longest, deepBytes/F32.Size(), p.kern.mr*filterDeep, widenRows*padded(min(c.N, block))+quantBlock)
	}
	if e.k.grid != nil {
		s.Call = max(s.Call, cells)
		s.Task.Small = max(s.Task.Small, widest)
		s.Task.B = max(s.Task.B, shortFloats(min(longest, e.k.gridShort)))
	}
	if c.N <= colsThin && e.k.block != nil {
		s.Call = max(s.Call, cols)
		b := e.k.blocks(c.N)
		s.Task.Small = max(s.Task.Small, b.widest()*b.tile)
		s.Task.B = max(s.Task.B, b.widest()*padded(longest)+packSlack)
		if widens {
			s.Task.Wide = max(s.Task.Wide, blockStrip/F32.Size()+2*b.tile*longest)
		}
	}
	if c.N <= colsThin && transposed && c.M > 2*colsThin {
		inner := c.transposed(nil)
		n := e.Need(&inner)
		s = s.With(Scratch{Call: c.M * c.N, Inner: n.Call, Task: n.Task})
		s.Task.Small = max(s.Task.Small, backFloats(c.N))
	}
	return s
}

// NeedAll is what RunAll takes for calls, each as with Need.
func (e *Engine) NeedAll(calls []*Call) Scratch {
	if len(calls) == 1 {
		return e.Need(calls[0])
	}
	s := Scratch{Group: len(calls)}
	for _, c := range calls {
		s = s.With(e.Need(c))
		few := *c
		few.M = min(c.M, rowsFew)
		n := e.Need(&few)
		s.Few, s.FewWhole = max(s.Few, n.Call), max(s.FewWhole, n.Whole)
	}
	return s
}

// NeedAfter is what RunAfter takes, or one RunAll after the other, each as with Need.
func (e *Engine) NeedAfter(downs, calls []*Call) Scratch {
	s := e.NeedAll(downs).With(e.NeedAll(calls))
	kern := e.k.sixths
	if kern == nil || slices.ContainsFunc(downs, func(d *Call) bool { return !e.pays(d) }) {
		return s
	}
	if e.Rounds() {
		kern = e.k.pairs
	}
	for _, c := range downs {
		d := down{c: c}
		s.Down += d.floats(kern)
		if d.pair().FilterA != nil {
			s.Task.Wide = max(s.Task.Wide, kern.mr*downDeep)
			s.Task.B = max(s.Task.B, kern.downPanel())
		}
	}
	return s
}

// widened is what a task needs for the quantised B of a pair.
func (e *Engine) widened(c *Call, p *Pair, kern *kernels) int {
	n := max(kern.nr*padded(min(p.K, kern.kc*kern.pairSize)), widenRows*padded(min(c.N, blockCols)), p.K)
	if c.M <= rowsFew && !p.B.Trans { // directQuantized, of a task's columns
		shares, groups := sharesFew*e.pool.Workers(), ceil(c.N, colsFew)
		if e.pool.Workers() == 1 {
			shares = 1
		}
		n = max(n, widenRows*ceil(groups, min(groups, shares))*colsFew)
	}
	if c.M > rowsFew && p.B.Trans && e.k.grid != nil {
		n = max(n, gridGroup*padded(min(p.K, gridDeep+32)))
	}
	return n + quantBlock
}

// Reserve makes room for calls that need s at most, of one Run after the
// other, so that these allocate nothing.
func (e *Engine) Reserve(s Scratch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.jobs) < 2 {
		e.jobs = append(e.jobs, newJob(e))
	}
	// The last of the idle is the next to be taken, and given back.
	e.jobs[len(e.jobs)-1].memory.take(s.Call)
	e.jobs[len(e.jobs)-1].packed.downB.take(s.Down)
	e.jobs[len(e.jobs)-1].whole.data.take(s.Whole)
	e.jobs[len(e.jobs)-2].memory.take(s.Inner)
	if s.Group > 0 {
		e.groups.Lock()
		e.group.reserve(e, s.Group, s.Few, s.FewWhole)
		e.groups.Unlock()
	}
	for len(e.spare) < e.pool.Workers() {
		e.spare = append(e.spare, new(scratch))
	}
	for _, m := range e.spare {
		m.take(s.Task)
	}
}

// ReserveSerial is Reserve for Serial, on all workers. None may be running.
func (e *Engine) ReserveSerial(s Scratch) {
	for i := range e.own {
		e.own[i].job.memory.take(s.Call)
		e.own[i].job.whole.data.take(s.Whole)
		e.own[i].take(s.Task)
	}
}

// take makes room for t.
func (s *scratch) take(t TaskScratch) {
	s.a.take(t.Small)
	s.b.take(t.B)
	s.wide.take(t.Wide)
	s.c.take(t.C)
}
