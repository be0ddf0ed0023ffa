package gemm

import "unsafe"

// fewRowsWay serves decoding: it multiplies at most 8 rows, or a few more of an adapter, with B in place, since
// packing B would take longer than the multiplication.
type fewRowsWay struct{}

// fewRows is a call on that way. It reads B once, and mostly waits for memory. Each task
// takes a range of columns.
//
// The order in which an element is summed does not depend on M here, except that a single row
// has its own.
type fewRows struct {
	*job
	cols int       // per task
	a    []operand // A of each pair
	task func(i int)
}

const (
	sharesFew = 4                  // tasks of each worker, or more: see sharesOf
	colsFew   = 64                 // columns of a task are a multiple
	rowsDots  = 16                 // rows of B per call of dots, small enough to be read twice
	rowsSplit = rowsFew * rowsDots // and of dotSplit, which reads them once
)

func (fewRowsWay) run(j *job) { j.spread(j.fewRows.divide(), j.fewRows.task) }

func (fewRowsWay) need(s *shape) (need Scratch) {
	for i := range s.Pairs {
		p := &s.Pairs[i]
		need.Call += min(s.M, rowsFew)*(padded(p.K)+splitPadded(p.K)) + packSlack
		if p.B.Elem.Quantized() {
			need.Task.Wide = max(need.Task.Wide, s.e.widenedFew(s.Call, p)+quantBlock)
		}
	}
	need.Task.Small = rowsFew * rowsDots
	need.Whole = s.wholeFloats(max(rowsOuter, s.limits.directRows))
	return need
}

// widenedFew returns the number of elements of a pair's quantised B that a task widens at a time: a row of B, or
// widenRows rows of the task's columns.
func (e *Engine) widenedFew(c *Call, p *Pair) int {
	if c.M > rowsFew || p.B.Trans {
		return p.K
	}
	shares, groups := sharesFew*e.pool.Workers(), ceil(c.N, colsFew)
	if e.pool.Workers() == 1 {
		shares = 1
	}
	return max(p.K, widenRows*ceil(groups, min(groups, shares))*colsFew)
}

// operand is a float32 matrix, with steps in bytes.
type operand struct {
	data     unsafe.Pointer
	row, col int
}

func (f *fewRows) bind(j *job) {
	f.job = j
	f.task = f.computeTask
	f.a = make([]operand, 0, usualPairs)
}

// divide readies A and returns the number of tasks.
func (f *fewRows) divide() int {
	f.readA()
	groups := ceil(f.c.N, colsFew)
	shares := sharesFew
	if f.c.readsAlong() {
		shares = f.e.sharesOf(f.c)
	}
	f.cols = ceil(groups, min(groups, f.shares(shares))) * colsFew
	return ceil(f.c.N, f.cols)
}

// sharesOf returns the number of tasks per worker if reading B dominates: enough to keep the wait for the last task
// short, but few enough that memory streams are long.
func (e *Engine) sharesOf(c *Call) int {
	const stream, most = 256 << 10, 16
	bytes := 0
	for i := range c.Pairs {
		p := &c.Pairs[i]
		bytes += p.K * c.N * p.B.Elem.bits() / 8
	}
	return max(sharesFew, min(most, bytes/(stream*e.pool.Workers())))
}

// readA prepares A of every pair, widened or transposed if the kernels require it.
func (f *fewRows) readA() {
	c, size := f.c, 0
	inPlace := func(p *Pair) bool {
		_, col := p.A.steps()
		return p.A.Elem == F32 && (!p.B.Trans || col == F32.Size())
	}
	for i := range c.Pairs {
		if p := &c.Pairs[i]; !p.idle() && !inPlace(p) {
			size += c.M*padded(p.K) + packSlack
		}
		if p := &c.Pairs[i]; f.splits(p) {
			size += c.M * splitPadded(p.K)
		}
	}
	free := f.job.memory.alloc(size)
	f.a = f.a[:0]
	for i := range c.Pairs {
		p := &c.Pairs[i]
		row, col := p.A.steps()
		o := operand{p.A.Data, row, col}
		if !p.idle() && !inPlace(p) {
			o = operand{floats(free, 0), 4 * padded(p.K), F32.Size()}
			f.k.pack(o.data, padded(p.K), p.A.Data, p.A.Elem, col, row, p.K, c.M, 1)
			free = free[c.M*padded(p.K)+packSlack:]
		}
		if f.splits(p) {
			whole := o
			o = operand{floats(free, 0), 4 * splitPadded(p.K), F32.Size()}
			for i := range c.M {
				f.k.rows.split(at(o.data, i*o.row), at(whole.data, i*whole.row), p.K)
			}
			free = free[c.M*splitPadded(p.K):]
		}
		f.a = append(f.a, o)
	}
}

// splits reports whether a pair is one for dotSplit.
func (f *fewRows) splits(p *Pair) bool { return f.shape.inFewRows(p) == byDotSplit }

// computeTask computes the columns of task i.
func (f *fewRows) computeTask(i int) {
	n0 := i * f.cols
	n1 := min(f.c.N, n0+f.cols)
	f.c.initialize(0, f.c.M, n0, n1)
	s := f.scratch()
	defer f.release(s)
	for i := range f.c.Pairs {
		p := &f.c.Pairs[i]
		switch by := f.shape.inFewRows(p); by {
		case bySkipped:
		case byDirectWidened:
			f.directWidened(p, f.a[i], n0, n1, s)
		case byDotWidened:
			f.dotWidened(p, f.a[i], n0, n1, s)
		case byDotBlocks, byDotBlocksLong:
			f.dotBlocks(p, f.a[i], n0, n1, s, by == byDotBlocksLong)
		case byDotSplit:
			f.dotSplit(p, f.a[i], n0, n1, s)
		case byShort:
			f.short(p, f.a[i].data, n0, n1)
		case byDots:
			f.dots(p, f.a[i], n0, n1, s)
		default:
			f.direct(p, f.a[i], n0, n1)
		}
	}
}

// dots adds a pair whose B has its k side by side.
func (f *fewRows) dots(p *Pair, a operand, n0, n1 int, s *scratch) {
	c := f.c
	out := s.a.alloc(rowsFew * rowsDots)
	_, ldb := p.B.steps()
	for n := n0; n < n1; n += rowsDots {
		cols := min(rowsDots, n1-n)
		for i := 0; i < c.M; i += f.k.rows.dotRows {
			rows := min(f.k.rows.dotRows, c.M-i)
			f.k.rows.dots(rows, p.K, at(a.data, i*a.row), a.row/F32.Size(), at(p.B.Data, n*ldb), p.B.Elem, ldb, cols,
				floats(out, i*rowsDots), rowsDots)
		}
		for i := range c.M {
			row := c.C[i*c.LDC+n:][:cols]
			for j, v := range out[i*rowsDots:][:len(row)] {
				row[j] += p.Alpha * v
			}
		}
	}
}

// dotSplit computes dots for rows whose even and odd elements are separate.
func (f *fewRows) dotSplit(p *Pair, a operand, n0, n1 int, s *scratch) {
	c := f.c
	step := rowsDots
	if c.M == 1 { // nothing is read twice
		step = rowsSplit
	}
	out := s.a.alloc(rowsSplit)
	_, ldb := p.B.steps()
	for n := n0; n < n1; n += step {
		for i := range c.M {
			row := c.C[i*c.LDC+n:][:min(step, n1-n)]
			f.k.rows.dotSplit(p.K, at(a.data, i*a.row), at(p.B.Data, n*ldb), ldb, len(row), floats(out, 0))
			for j, v := range out[:len(row)] {
				row[j] += p.Alpha * v
			}
		}
	}
}

// short adds a pair of one row and a short k, x being its row of A.
func (j *job) short(p *Pair, x unsafe.Pointer, n0, n1 int) {
	_, ldb := p.B.steps()
	j.k.rows.short(p.K, x, at(p.B.Data, n0*ldb), ldb, n1-n0, floats(j.c.C, n0), p.Alpha)
}

// direct adds a pair whose B has its columns side by side.
func (f *fewRows) direct(p *Pair, a operand, n0, n1 int) {
	f.walk(p, a, 0, p.K, stretchOf(p.K, directDepth(f.c.N)), n0, n1, f.c.C, f.c.LDC)
}

// walk adds k elements from k0 on of a pair whose B has adjacent columns to the columns [n0,n1) of sum, with row
// stride ld, one block of k at a time. A strip of columns stays in the first-level cache and is multiplied with all
// rows of A. The hardware does not prefetch down the rows of B. If tasks have long row segments, the next block of k
// is therefore prefetched while this one is computed. (Short segments arrive in time by themselves, and prefetching
// them costs a fifth.)
func (j *job) walk(p *Pair, a operand, k0, k, stretch, n0, n1 int, sum []float32, ld int) {
	const longRun = 2 << 10 // bytes
	ldb, size := p.B.Stride*p.B.Elem.Size(), p.B.Elem.Size()
	strips := ceil(n1-n0, colsFew)
	for end := k0 + k; k0 < end; k0 += stretch {
		depth := min(stretch, end-k0)
		next := min(stretch, end-k0-depth)
		for s := range strips {
			if j.k.fetch != nil && (n1-n0)*size >= longRun {
				for t := s * next / strips; t < (s+1)*next/strips; t++ {
					j.k.fetch(at(p.B.Data, (k0+depth+t)*ldb+n0*size), (n1-n0)*size)
				}
			}
			n := n0 + s*colsFew
			for i := 0; i < j.c.M; i += j.k.rows.directRows {
				j.k.rows.direct(min(j.k.rows.directRows, j.c.M-i), depth, at(a.data, i*a.row+k0*a.col), a.row, a.col,
					at(p.B.Data, k0*ldb+n*size), p.B.Elem, ldb, floats(sum, i*ld+n), ld, min(colsFew, n1-n), p.Alpha)
			}
		}
	}
}

// directDepth returns the number of rows of B that the direct kernel walks down before it moves on to the next
// columns. Long rows are on separate pages, of which the TLB holds only a limited number.
func directDepth(cols int) int {
	if cols > 4*colsFew {
		return 64
	}
	return 512
}
