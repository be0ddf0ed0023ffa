package gemm

// transposeResultWay computes the gradient of an adapter's B, dyᵀ·h: many rows, few columns, A transposed. It
// computes Cᵀ = Bᵀ·Aᵀ and transposes that, so that long thin panels are replaced by rows in place.
type transposeResultWay struct{}

// transposeResult is a call on that way.
type transposeResult struct {
	*job
	call Call // of Cᵀ
	rows int  // of C per task
	task func(i int)
}

func (f *transposeResult) bind(j *job) {
	f.job = j
	f.task = f.back
	f.call.Pairs = make([]Pair, 0, usualPairs)
}

func (transposeResultWay) run(j *job) { j.transposeResult.run() }

func (f *transposeResult) run() {
	c := f.c
	f.call = c.transposed(f.call.Pairs)
	f.call.C, f.call.LDC = f.job.memory.alloc(c.M*c.N), c.M
	inner := f.e.job(&f.call)
	inner.workers, inner.local = f.workers, f.local
	inner.run()
	f.e.release(inner)

	f.rows = ceil(c.M, f.shares(1))
	f.spread(ceil(c.M, f.rows), f.task)
}

func (transposeResultWay) need(s *shape) Scratch {
	if !s.fitsTransposeResult() {
		return Scratch{}
	}
	inner := s.transposed(nil)
	n := s.e.Need(&inner)
	need := Scratch{Call: s.M * s.N, Inner: n.Call, Whole: s.wholeFloats(s.M), Task: n.Task}
	need.Task.Small = max(need.Task.Small, backFloats(s.N))
	return need
}

// backRows is the number of rows of C that are written at a time. They read one cache line of each row of Cᵀ; more
// lines would evict each other if rows are a power of two apart.
const backRows = 16

// back transposes the rows of task i into C.
func (f *transposeResult) back(i int) {
	c, m0 := f.c, i*f.rows
	m1 := min(c.M, m0+f.rows)
	plain := c.Bias == nil && !c.Accumulate
	if !plain {
		c.initialize(m0, m1, 0, c.N)
	}
	s := f.scratch()
	defer f.release(s)
	width := padded(c.N)
	across := s.a.alloc(backFloats(c.N))
	for ; m0 < m1; m0 += backRows {
		rows := min(backRows, m1-m0)
		f.k.pack(floats(across, 0), width, floats(f.call.C, m0), F32, c.M*F32.Size(), F32.Size(), c.N, rows, 1)
		for m := range rows {
			to, from := c.C[(m0+m)*c.LDC:][:c.N], across[m*width:][:c.N]
			if plain {
				copy(to, from)
				continue
			}
			for n, v := range from {
				to[n] += v
			}
		}
	}
}

// backFloats returns the memory that back needs for cols columns.
func backFloats(cols int) int { return backRows*padded(cols) + packSlack }
