package gemm

// Scratch is the memory that calls take in passing, in floats.
type Scratch struct {
	Call  int // of a call under way: A and what else is packed once
	Inner int // of the call that a flipped one is turned into
	Task  int // of each worker: B
}

// With is enough for both s and t, one after the other.
func (s Scratch) With(t Scratch) Scratch {
	return Scratch{max(s.Call, t.Call), max(s.Inner, t.Inner), max(s.Task, t.Task)}
}

// Bytes is what s takes on the engine's workers.
func (e *Engine) Bytes(s Scratch) int64 {
	return 4 * int64(s.Call+s.Inner+e.pool.Workers()*s.Task)
}

// taskFloats is what the ways that pack no B take per task.
const taskFloats = rowsFew * rowsDots

// Need is the most that c takes, and any call that differs from it only in
// being smaller. Data of c is not looked at.
func (e *Engine) Need(c *Call) Scratch {
	kern := e.k
	if e.Rounds() {
		kern = kern.pairs
	}
	depth, rows, cols, group, transposed := 0, 0, 0, 0, true
	for i := range c.Pairs {
		p := &c.Pairs[i]
		depth += kern.words(p.K)
		rows += min(c.M, rowsFew)*padded(p.K) + packSlack
		cols += min(c.N, colsThin) * padded(p.K)
		group = max(group, e.k.blockCols*padded(p.K)+packSlack)
		transposed = transposed && p.A.Trans
	}
	// Any way but that of few columns can be the one of a smaller call.
	s := Scratch{
		Call: max(rows, min(c.M*depth, max(e.packed, kern.mr*depth))+ceil(c.M, kern.mr)*(packSlack+1)),
		Task: max(taskFloats, min(ceil(c.N, kern.nr), ceil(blockCols, kern.nr))*kern.nr*min(padded(depth), kern.kc)+packSlack),
	}
	if c.N <= colsThin {
		s.Call, s.Task = max(s.Call, cols), max(s.Task, group)
	}
	if c.N <= colsThin && transposed && c.M > 2*colsThin {
		inner := Call{M: c.N, N: c.M, Pairs: make([]Pair, 0, len(c.Pairs))}
		for _, p := range c.Pairs {
			inner.Pairs = append(inner.Pairs, Pair{A: p.B.T(), B: p.A.T(), K: p.K})
		}
		n := e.Need(&inner)
		s = s.With(Scratch{Call: c.M * c.N, Inner: n.Call, Task: n.Task})
	}
	return s
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
	e.jobs[len(e.jobs)-2].memory.take(s.Inner)
	for len(e.spare) < e.pool.Workers() {
		e.spare = append(e.spare, new(scratch))
	}
	for _, m := range e.spare {
		m.a.take(taskFloats)
		m.b.take(s.Task)
	}
}

// ReserveSerial is Reserve for Serial, on all workers. None may be running.
func (e *Engine) ReserveSerial(s Scratch) {
	for i := range e.own {
		e.own[i].job.memory.take(s.Call)
		e.own[i].a.take(taskFloats)
		e.own[i].b.take(s.Task)
	}
}
