package gemm

// flipped computes a call of few columns whose operands A are all transposed,
// such as the gradient of an adapter's B, as Cᵀ = Σ α·op(B)ᵀ·op(A)ᵀ: what
// would be long thin panels are then rows as they lie in memory.
type flipped struct {
	*job
	call Call
	rows int // of C per task
	task func(i int)
}

func (f *flipped) bind(j *job) {
	f.job = j
	f.task = f.back
	f.call.Pairs = make([]Pair, 0, usualPairs)
}

func (f *flipped) run() {
	c := f.c
	f.call = c.transposed(f.call.Pairs)
	f.call.C, f.call.LDC = f.job.memory.take(c.M*c.N), c.M
	inner := f.e.job(&f.call)
	inner.workers, inner.local = f.workers, f.local
	inner.run()
	f.e.release(inner)

	f.rows = ceil(c.M, f.shares(1))
	f.spread(ceil(c.M, f.rows), f.task)
}

// backRows is how many rows of C are written at a time: what they read of Cᵀ is
// a cache line of each row, and these rows may share their places in the cache.
const backRows = 16

// back transposes the rows of task i into C.
func (f *flipped) back(i int) {
	c, m0 := f.c, i*f.rows
	m1 := min(c.M, m0+f.rows)
	plain := c.Bias == nil && !c.Accumulate
	if !plain {
		c.initialize(m0, m1, 0, c.N)
	}
	s := f.scratch()
	defer f.release(s)
	width := padded(c.N)
	turned := s.a.take(backFloats(c.N))
	for ; m0 < m1; m0 += backRows {
		rows := min(backRows, m1-m0)
		f.k.pack(floats(turned, 0), width, floats(f.call.C, m0), F32, c.M*F32.Size(), F32.Size(), c.N, rows, 1)
		for m := range rows {
			to, from := c.C[(m0+m)*c.LDC:][:c.N], turned[m*width:][:c.N]
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

// backFloats is what back takes for so many columns.
func backFloats(cols int) int { return backRows*padded(cols) + packSlack }
