package gemm

import "slices"

// Scratch is the memory that calls take in passing, in floats.
type Scratch struct {
	Call  int // per running call: A and other operands that are packed once
	Down  int // of B of the downs that it computes
	Inner int // of the call that transposeResult computes
	Group int // calls of a RunAll
	Few   int // of each of these
	// Whole is for a C that is stored in fewer bits, FewWhole for that of each of a group.
	Whole, FewWhole int
	Task            TaskScratch
}

// TaskScratch is the memory of one worker: small buffers, packed B, widened quantised weights, and a block of C.
type TaskScratch struct{ Small, B, Wide, C int }

// With returns memory that is enough for both s and t, used in turn.
func (s Scratch) With(t Scratch) Scratch {
	return Scratch{max(s.Call, t.Call), max(s.Down, t.Down), max(s.Inner, t.Inner), max(s.Group, t.Group), max(s.Few, t.Few),
		max(s.Whole, t.Whole), max(s.FewWhole, t.FewWhole),
		TaskScratch{max(s.Task.Small, t.Task.Small), max(s.Task.B, t.Task.B), max(s.Task.Wide, t.Task.Wide), max(s.Task.C, t.Task.C)}}
}

// Bytes returns the size of s on the engine's workers.
func (e *Engine) Bytes(s Scratch) int64 {
	return 4 * int64(s.Call+s.Down+s.Inner+s.Group*(s.Few+s.FewWhole)+s.Whole+e.pool.Workers()*(s.Task.Small+s.Task.B+s.Task.Wide+s.Task.C))
}

// SerialBytes returns the size of s for Serial on all workers.
func (e *Engine) SerialBytes(s Scratch) int64 {
	return 4 * int64(e.pool.Workers()*(s.Call+s.Whole+s.Task.Small+s.Task.B+s.Task.Wide+s.Task.C))
}

// Need returns the maximum memory of c and of all calls that differ from it only by being smaller, which may use
// other ways. The data of c is not read.
func (e *Engine) Need(c *Call) (need Scratch) {
	all := *c
	all.Pairs = slices.Clone(c.Pairs)
	for i := range all.Pairs {
		all.Pairs[i].Alpha = 1 // it may be that when the call runs
	}
	s := e.shapeOf(&all)
	s.e = e
	s.invariant = e.mode.invariant || c.Invariant // rows across may have Alpha 0
	for i := range routes {
		need = need.With(routes[i].way.need(&s))
	}
	return need
}

// NeedAll returns the memory that RunAll needs for calls, each as in Need.
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

// NeedAfter returns the memory that RunAfter, or RunAll of downs and then of calls, needs, each as in Need.
func (e *Engine) NeedAfter(downs, calls []*Call) Scratch {
	s := e.NeedAll(downs).With(e.NeedAll(calls))
	if !e.k.limits.tiles || slices.ContainsFunc(downs, func(d *Call) bool { return !downPays(d, e.Rounds()) }) {
		return s
	}
	kern := e.k.piecesOfBoth
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

// Reserve makes room for calls that need s at most, of one Run after the
// other, so that these allocate nothing.
func (e *Engine) Reserve(s Scratch) {
	if s.Group > 0 { // before mu, because running calls lock it in this order
		e.groups.Lock()
		e.group.reserve(e, s.Group, s.Few, s.FewWhole)
		e.groups.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.jobs) < 2 {
		e.jobs = append(e.jobs, newJob(e))
	}
	// The last of the idle is the next to be taken, and given back.
	e.jobs[len(e.jobs)-1].memory.alloc(s.Call)
	e.jobs[len(e.jobs)-1].panels.downB.alloc(s.Down)
	e.jobs[len(e.jobs)-1].whole.data.alloc(s.Whole)
	e.jobs[len(e.jobs)-2].memory.alloc(s.Inner)
	for len(e.spare) < e.pool.Workers() {
		e.spare = append(e.spare, new(scratch))
	}
	for _, m := range e.spare {
		m.include(s.Task)
	}
}

// ReserveSerial reserves memory for Serial on all workers, none of which may be running.
func (e *Engine) ReserveSerial(s Scratch) {
	for i := range e.own {
		e.own[i].job.memory.alloc(s.Call)
		e.own[i].job.whole.data.alloc(s.Whole)
		e.own[i].include(s.Task)
	}
}

// include grows s to hold t.
func (s *scratch) include(t TaskScratch) {
	s.a.alloc(t.Small)
	s.b.alloc(t.B)
	s.wide.alloc(t.Wide)
	s.c.alloc(t.C)
}
