package gemm

import (
	"math"
	"unsafe"
)

// rowsInPlaceWay multiplies a few rows with checkpoint weights, x·Wᵀ, in place: packing them would take longer than
// the multiplication.
type rowsInPlaceWay struct{}

// rowsInPlace is a call on that way. Each task takes a range of columns, a few of them at a
// time, which stay in cache while all rows of A are multiplied with them. Only A is packed;
// quantised weights are widened.
//
// The order in which an element is summed does not depend on M here, except that a single row
// has its own.
type rowsInPlace struct {
	*job
	panels int // of A
	cols   int // per task
	a      []inPlaceA
	pack   func(i int)
	task   func(i int)
}

// inPlaceA holds A of a pair in panels, with the registers of its rows interleaved: row i of a panel of n rows is
// every n-th register, starting with the i-th.
type inPlaceA struct {
	by   by
	kern *kernels // kernels of the job, or for pairs
	elem Elem     // what the kernel reads B as
	row  int      // floats of a row
	data []float32
}

const (
	inPlaceGroup = 12       // columns that stay in cache, a multiple of a kernel's columns
	inPlaceDeep  = 4096     // longest run of k between two updates of C
	inPlaceAhead = 32 << 10 // how far ahead B is fetched: it comes from memory in one run

	inPlaceDeepPairs = 1024 // of pairs: eight rows of A stay in the nearest cache

	inPlaceDeepOne  = 16384    // of a single row, which waits for memory alone
	inPlaceAheadOne = 64 << 10 // at most, see aheadOne
)

func (f *rowsInPlace) bind(j *job) {
	f.job = j
	f.pack, f.task = f.packPanel, f.computeTask
	f.a = make([]inPlaceA, 0, usualPairs)
}

func (rowsInPlaceWay) run(j *job) { j.spread(j.rowsInPlace.divide(), j.rowsInPlace.task) }

func (rowsInPlaceWay) need(s *shape) (need Scratch) {
	k := s.e.k
	if k.inPlace == nil {
		return Scratch{}
	}
	for i := range s.Pairs {
		p := &s.Pairs[i]
		need.Call += min(s.M, s.limits.inPlaceRows) * k.inPlaceFloats(p.K)
		if p.A.Elem != F32 || p.A.Trans {
			need.Task.Small = max(need.Task.Small, min(s.M, k.inPlace.rows)*padded(p.K)+packSlack)
		}
		if p.B.Elem.Quantized() && p.B.Trans && s.M > rowsFew {
			need.Task.Wide = max(need.Task.Wide, inPlaceGroup*padded(min(p.K, inPlaceDeep+32))+quantBlock)
		}
	}
	need.Whole = s.wholeFloats(s.limits.inPlaceRows)
	need.Task.B = shortFloats(min(s.longest, s.limits.inPlaceShort))
	return need
}

// divide packs A and returns the number of tasks.
func (f *rowsInPlace) divide() int {
	f.panels = f.k.inPlace.panels(f.c.M)
	f.takeRoom()
	f.spread(f.panels, f.pack)
	groups, shares := ceil(f.c.N, inPlaceGroup), sharesFew
	if f.shape.single() {
		shares = f.e.sharesOf(f.c)
	}
	f.cols = ceil(groups, min(groups, f.shares(shares))) * inPlaceGroup
	return ceil(f.c.N, f.cols)
}

// panels returns the number of panels for rows rows.
func (k *inPlaceKernels) panels(rows int) int {
	if rows <= k.rows {
		return 1
	}
	return ceil(rows, k.panelRows)
}

// panel returns the first row of panel i, which is the end of panel i-1.
func (f *rowsInPlace) panel(i int) int { return i * f.c.M / f.panels }

// panelsOf returns the panel layout of A of a pair.
func (f *rowsInPlace) panelsOf(p *Pair) inPlaceA {
	g := inPlaceA{by: f.shape.inRowsInPlace(p), kern: f.k, elem: p.B.Elem}
	switch g.by {
	case bySkipped, byShortRows:
		return g
	case byPairs:
		g.kern = f.k.pairs
	}
	if p.B.Elem.Quantized() {
		g.elem = F32
	}
	g.row = g.kern.inPlaceFloats(p.K)
	return g
}

// takeRoom makes room for the panels of every pair.
func (f *rowsInPlace) takeRoom() {
	c, size := f.c, 0
	f.a = f.a[:0]
	for i := range c.Pairs {
		g := f.panelsOf(&c.Pairs[i])
		size += c.M * g.row
		f.a = append(f.a, g)
	}
	free := f.job.memory.alloc(size)
	for i := range f.a {
		n := c.M * f.a[i].row
		f.a[i].data, free = free[:n], free[n:]
	}
}

// packPanel packs panel i of A of every pair.
func (f *rowsInPlace) packPanel(i int) {
	m0, m1 := f.panel(i), f.panel(i+1)
	for x := range f.a {
		p, g := &f.c.Pairs[x], &f.a[x]
		if g.row == 0 {
			continue
		}
		row, col := p.A.steps()
		a := at(p.A.Data, m0*row)
		var s *scratch
		if p.A.Elem != F32 || p.A.Trans {
			s = f.scratch()
			wide := s.a.alloc((m1-m0)*padded(p.K) + packSlack)
			f.k.pack(floats(wide, 0), padded(p.K), a, p.A.Elem, col, row, p.K, m1-m0, 1)
			a, row = floats(wide, 0), 4*padded(p.K)
		}
		for m := range m1 - m0 {
			g.kern.inPlace.panel(floats(g.data, m0*g.row), m, m1-m0, at(a, m*row), p.K, g.elem)
		}
		if s != nil {
			f.release(s)
		}
	}
}

// computeTask computes the columns of task i. Pairs of a short k, such as h·Bᵀ, come last, for
// all columns at once: they are fetched while the others are computed.
func (f *rowsInPlace) computeTask(i int) {
	c := f.c
	n0 := i * f.cols
	n1 := min(c.N, n0+f.cols)
	c.initialize(0, c.M, n0, n1)
	s := f.scratch()
	defer f.release(s)
	for n := n0; n < n1; n += inPlaceGroup {
		end := min(n1, n+inPlaceGroup)
		for x := range f.a {
			p := &c.Pairs[x]
			switch f.a[x].by {
			case bySkipped:
			case byShort, byShortRows:
				if row := p.B.Stride * p.B.Elem.Size(); p.B.Stride <= shortMost { // one run of memory
					f.k.fetch(at(p.B.Data, n*row), (end-n)*row)
				}
			default:
				f.group(p, &f.a[x], n, end, s)
			}
		}
	}
	for x := range f.a {
		switch p := &c.Pairs[x]; f.a[x].by {
		case byShort:
			f.short(p, floats(f.a[x].data, 0), n0, n1)
		case byShortRows:
			f.shortRows(p, n0, n1, s)
		}
	}
}

// shortRows adds a pair of several rows and a short k, as h·Bᵀ of an adapter. B is transposed
// on its way, since sums across registers would take longer than the products.
func (f *rowsInPlace) shortRows(p *Pair, n0, n1 int, s *scratch) {
	row, col := p.A.steps()
	_, ldb := p.B.steps()
	b := s.b.alloc(shortFloats(p.K))
	for n := n0; n < n1; n += colsFew {
		cols := min(colsFew, n1-n)
		f.k.pack(floats(b, 0), colsFew, at(p.B.Data, n*ldb), p.B.Elem, ldb, p.B.Elem.Size(), cols, p.K, 1)
		for i := 0; i < f.c.M; i += f.k.rows.directRows {
			f.k.rows.direct(min(f.k.rows.directRows, f.c.M-i), p.K, at(p.A.Data, i*row), row, col,
				floats(b, 0), F32, colsFew*F32.Size(), floats(f.c.C, i*f.c.LDC+n), f.c.LDC, cols, p.Alpha)
		}
	}
}

// shortFloats returns the number of floats for B of a pair of shortRows.
func shortFloats(k int) int { return k*colsFew + packSlack }

// group adds a pair to columns [n0,n1) of C.
func (f *rowsInPlace) group(p *Pair, g *inPlaceA, n0, n1 int, s *scratch) {
	// Kernels read whole groups of rows of B: the last one begins earlier.
	first := max(0, min(n0, n1-inPlaceMostCols))
	most, next := inPlaceDeep, front{inPlaceAhead, math.MaxInt} // from row first on
	switch {
	case f.shape.single():
		most = inPlaceDeepOne
		next.next = f.aheadOne(f.cols * p.B.Stride * g.elem.Size())
	case g.kern.pairSize == 2:
		most = inPlaceDeepPairs
	}
	stretch := ceil(ceil(p.K, ceil(p.K, most)), 32) * 32 // whole turns of all kernels
	for k0 := 0; k0 < p.K; k0 += stretch {
		k := min(stretch, p.K-k0)
		b, ldb := p.B.Data, p.B.Stride*g.elem.Size()
		if p.B.Elem.Quantized() {
			b, ldb, next = f.widened(p, first, n1, k0, k, s), 4*padded(k), front{}
		} else {
			b = at(b, first*ldb+k0*g.elem.Size())
		}
		f.multiply(p, g, k0, k, b, ldb, first, n0, n1, &next)
	}
}

// aheadOne returns the prefetch distance in B for a single row, given the bytes that a task reads. Zen 4 profits from
// a larger distance than for several rows. Zen 3 profits in long tasks only, since memory past the end of a task may
// belong to another core. With lateFetch it is the same as for several rows, because the start of a task is not
// prefetched.
func (f *rowsInPlace) aheadOne(task int) int {
	switch {
	case f.k.limits.lateFetch:
		return inPlaceAhead
	case !f.k.limits.dotSplit:
		return min(inPlaceAheadOne, task/8)
	}
	return inPlaceAheadOne
}

// multiply adds k elements from k0 on of a pair; b points to row first of B. The first panel prefetches as much of
// next as it reads.
func (f *rowsInPlace) multiply(p *Pair, g *inPlaceA, k0, k int, b unsafe.Pointer, ldb, first, n0, n1 int, next *front) {
	for i := range f.panels {
		m0, m1 := f.panel(i), f.panel(i+1)
		a := floats(g.data, m0*g.row+(m1-m0)*(k0/g.kern.pairSize))
		cols := f.k.inPlace.cols[m1-m0]
		for n := n0; n < n1; n += cols {
			skip := max(0, n+cols-n1)
			row, ahead := (n-skip-first)*ldb, 0
			if i == 0 {
				ahead = next.step(row+k0*g.elem.Size(), cols*k*g.elem.Size())
			}
			g.kern.inPlace.multiply(m1-m0, k, a, at(b, row), g.elem, ldb,
				floats(f.c.C, m0*f.c.LDC+n-skip), f.c.LDC, skip, ahead, p.Alpha)
		}
	}
}

// widened returns k elements from k0 on of rows [n0,n1) of a quantised B, each zero-padded to a multiple of 16.
func (f *rowsInPlace) widened(p *Pair, n0, n1, k0, k int, s *scratch) unsafe.Pointer {
	wide, whole := s.widened((n1 - n0) * padded(k))
	for n := n0; n < n1; n++ {
		row := wide[(n-n0)*padded(k):][:padded(k)]
		f.k.widen(row[:k], whole, p.B, n*p.B.Stride+k0)
		clear(row[k:])
	}
	return floats(wide, 0)
}
