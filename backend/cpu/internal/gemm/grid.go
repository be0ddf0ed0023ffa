package gemm

import (
	"math"
	"unsafe"
)

// grid computes a call of a few rows whose operands B all have their k side by
// side, as x·Wᵀ with the weights of a checkpoint, from B as it lies in memory:
// packing B would take longer than the products. Each task takes a range of
// columns, a few of them at a time, which stay in cache while all rows of A
// are multiplied with them. What is packed is A, and quantised weights are
// widened.
//
// The order in which an element is summed does not depend on M here, but for a
// single row.
type grid struct {
	*job
	panels int // of A
	cols   int // per task
	a      []gridA
	pack   func(i int)
	task   func(i int)
}

// gridA is A of a pair in panels: row i of a panel of n is every n-th register
// from the i-th.
type gridA struct {
	kern *kernels // those of the job, or those for pairs
	elem Elem     // what the kernel reads B as
	row  int      // floats of a row
	data []float32
}

const (
	gridGroup = 12       // columns that stay in cache, a whole number of grids
	gridLeast = 8        // columns that a grid pays for
	gridDeep  = 4096     // longest run of k between two updates of C
	gridAhead = 32 << 10 // how far ahead B is fetched: it comes from memory in one piece

	gridDeepPairs = 1024 // of pairs: eight rows of A stay in the nearest cache

	gridDeepOne  = 16384    // of a single row, which waits for memory alone
	gridAheadOne = 64 << 10 // at most, see aheadOne
)

// The calls for which a grid is faster than what else there is, by the rows of
// A, gridMost at most, and the longest k (measured on Zen 4).
const (
	gridRowsPairs = 48 // where both ways multiply pairs of bfloat16
	gridRowsMixed = 12 // where packed panels would be pairs, and grids are not
	gridKOne      = 2048
	gridKSplit    = 2048 + 1 // where the other way is dotSplit: a longer x leaves it little of the nearest cache
	gridKLate     = 512      // of any row where fetchesLate, or where no way has dotSplit (Zen 3: 1.2 to 1.4 times as fast from memory); shorter ones are those of heads, in cache
	gridKFloat    = 512
	gridKPairs    = 1024
)

// takes reports whether a call is one for a grid.
func (k *kernels) takes(c *Call, rounds bool) bool {
	if k.grid == nil || c.N < gridLeast || c.M > k.gridMost {
		return false
	}
	depth, elem := 0, F32
	for i := range c.Pairs {
		p := &c.Pairs[i]
		switch {
		case p.idle():
		case !p.B.Trans || p.B.Elem.Quantized() && c.M <= rowsFew:
			return false
		case p.K > depth:
			depth, elem = p.K, p.B.Elem
		}
	}
	switch {
	case depth == 0:
		return false
	case c.M == 1 && (k.fetchesLate || k.split == nil):
		return depth >= gridKLate
	case c.M == 1 && elem == BF16:
		return depth >= gridKSplit
	case c.M == 1:
		return depth >= gridKOne
	case c.M <= rowsFew:
		return true
	case k.panelKernels(c, rounds).packA != nil: // tiles
		return false
	case !rounds:
		return depth >= gridKFloat
	case elem != BF16:
		return c.M <= gridRowsMixed && depth >= gridKFloat
	}
	return c.M <= gridRowsPairs && depth >= gridKPairs
}

func (f *grid) bind(j *job) {
	f.job = j
	f.pack, f.task = f.packPanel, f.columns
	f.a = make([]gridA, 0, usualPairs)
}

func (f *grid) run() { f.spread(f.divide(), f.task) }

// divide packs A and returns the number of tasks.
func (f *grid) divide() int {
	f.panels = f.k.gridPanels(f.c.M)
	f.prepare()
	f.spread(f.panels, f.pack)
	groups, shares := ceil(f.c.N, gridGroup), sharesFew
	if f.e.single(f.c) {
		shares = f.e.sharesOf(f.c)
	}
	f.cols = ceil(groups, min(groups, f.shares(shares))) * gridGroup
	return ceil(f.c.N, f.cols)
}

// gridPanels is into how many panels so many rows are divided.
func (k *kernels) gridPanels(rows int) int {
	if rows <= k.gridRows {
		return 1
	}
	return ceil(rows, k.gridPanel)
}

// panel is the first row of panel i, and where panel i-1 ends.
func (f *grid) panel(i int) int { return i * f.c.M / f.panels }

// gridOf is how A of a pair lies in panels. A single row waits for memory and
// is not rounded.
func (e *Engine) gridOf(c *Call, p *Pair) gridA {
	g := gridA{kern: e.k, elem: p.B.Elem}
	switch {
	case p.idle(), e.besideGrid(p, c):
		return g
	case p.B.Elem == BF16 && e.Rounds() && e.k.pairs.grid != nil && !e.single(c):
		g.kern = e.k.pairs
	case p.B.Elem.Quantized():
		g.elem = F32
	}
	g.row = g.kern.gridFloats(p.K)
	return g
}

// prepare makes room for the panels of every pair.
func (f *grid) prepare() {
	c, size := f.c, 0
	f.a = f.a[:0]
	for i := range c.Pairs {
		g := f.e.gridOf(c, &c.Pairs[i])
		size += c.M * g.row
		f.a = append(f.a, g)
	}
	free := f.job.memory.take(size)
	for i := range f.a {
		n := c.M * f.a[i].row
		f.a[i].data, free = free[:n], free[n:]
	}
}

// packPanel packs panel i of A of every pair.
func (f *grid) packPanel(i int) {
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
			wide := s.a.take((m1-m0)*padded(p.K) + packSlack)
			f.k.pack(floats(wide, 0), padded(p.K), a, p.A.Elem, col, row, p.K, m1-m0, 1)
			a, row = floats(wide, 0), 4*padded(p.K)
		}
		for m := range m1 - m0 {
			g.kern.panel(floats(g.data, m0*g.row), m, m1-m0, at(a, m*row), p.K, g.elem)
		}
		if s != nil {
			f.release(s)
		}
	}
}

// columns computes the columns of task i: short pairs at once, when they have
// come from memory while the others were computed.
func (f *grid) columns(i int) {
	c := f.c
	n0 := i * f.cols
	n1 := min(c.N, n0+f.cols)
	c.initialize(0, c.M, n0, n1)
	s := f.scratch()
	defer f.release(s)
	for n := n0; n < n1; n += gridGroup {
		end := min(n1, n+gridGroup)
		for x := range f.a {
			switch p := &c.Pairs[x]; {
			case p.idle():
			case f.isShort(p), f.e.besideGrid(p, c):
				if row := p.B.Stride * p.B.Elem.Size(); p.B.Stride <= shortMost { // one piece of memory
					f.k.fetch(at(p.B.Data, n*row), (end-n)*row)
				}
			default:
				f.group(p, &f.a[x], n, end, s)
			}
		}
	}
	for x := range f.a {
		switch p := &c.Pairs[x]; {
		case f.isShort(p):
			f.short(p, floats(f.a[x].data, 0), n0, n1)
		case f.e.besideGrid(p, c):
			f.shortRows(p, n0, n1, s)
		}
	}
}

// besideGrid reports whether a pair of a call is one for shortRows. What it
// adds depends on the pair alone, but for a single row.
func (e *Engine) besideGrid(p *Pair, c *Call) bool {
	return !e.single(c) && p.K <= e.k.gridShort && p.A.Elem == F32 && !p.A.Trans && !p.B.Elem.Quantized() && !p.idle()
}

// shortRows adds such a pair, as h·Bᵀ of an adapter. Sums across registers would take
// longer than its products: B is transposed on its way.
func (f *grid) shortRows(p *Pair, n0, n1 int, s *scratch) {
	row, col := p.A.steps()
	_, ldb := p.B.steps()
	b := s.b.take(shortFloats(p.K))
	for n := n0; n < n1; n += colsFew {
		cols := min(colsFew, n1-n)
		f.k.pack(floats(b, 0), colsFew, at(p.B.Data, n*ldb), p.B.Elem, ldb, p.B.Elem.Size(), cols, p.K, 1)
		for i := 0; i < f.c.M; i += f.k.directRows {
			f.k.direct(min(f.k.directRows, f.c.M-i), p.K, at(p.A.Data, i*row), row, col,
				floats(b, 0), F32, colsFew*F32.Size(), floats(f.c.C, i*f.c.LDC+n), f.c.LDC, cols, p.Alpha)
		}
	}
}

// shortFloats is what B of a pair of shortRows takes.
func shortFloats(k int) int { return k*colsFew + packSlack }

// group adds a pair to columns [n0,n1) of C.
func (f *grid) group(p *Pair, g *gridA, n0, n1 int, s *scratch) {
	// Grids read whole groups of rows of B: the last one begins earlier.
	first := max(0, min(n0, n1-gridMostCols))
	deep, next := gridDeep, front{gridAhead, math.MaxInt} // from row first on
	switch {
	case f.e.single(f.c):
		deep = gridDeepOne
		next.next = f.aheadOne(f.cols * p.B.Stride * g.elem.Size())
	case g.kern.pairSize == 2:
		deep = gridDeepPairs
	}
	stretch := ceil(ceil(p.K, ceil(p.K, deep)), 32) * 32 // whole turns of all kernels
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

// aheadOne is how far ahead B is fetched for a single row, whose tasks read so many
// bytes. Zen 4 gains by fetching from further ahead than other rows do. Zen 3 does so in
// long tasks alone: what lies behind a task's end may be another core's to read. Where
// fetchesLate it is as for other rows, since what a task reads first is not fetched.
func (f *grid) aheadOne(task int) int {
	switch {
	case f.k.fetchesLate:
		return gridAhead
	case f.k.split == nil:
		return min(gridAheadOne, task/8)
	}
	return gridAheadOne
}

// multiply adds k elements from k0 on of a pair, with b its row first of B
// there. The first panel fetches as much as it reads of what is next.
func (f *grid) multiply(p *Pair, g *gridA, k0, k int, b unsafe.Pointer, ldb, first, n0, n1 int, next *front) {
	for i := range f.panels {
		m0, m1 := f.panel(i), f.panel(i+1)
		a := floats(g.data, m0*g.row+(m1-m0)*(k0/g.kern.pairSize))
		cols := f.k.gridCols[m1-m0]
		for n := n0; n < n1; n += cols {
			skip := max(0, n+cols-n1)
			row, ahead := (n-skip-first)*ldb, 0
			if i == 0 {
				ahead = next.step(row+k0*g.elem.Size(), cols*k*g.elem.Size())
			}
			g.kern.grid(m1-m0, k, a, at(b, row), g.elem, ldb,
				floats(f.c.C, m0*f.c.LDC+n-skip), f.c.LDC, skip, ahead, p.Alpha)
		}
	}
}

// widened is k elements from k0 on of rows [n0,n1) of a quantised B, each
// followed by zeroes to a multiple of 16.
func (f *grid) widened(p *Pair, n0, n1, k0, k int, s *scratch) unsafe.Pointer {
	wide, whole := s.widened((n1 - n0) * padded(k))
	for n := n0; n < n1; n++ {
		row := wide[(n-n0)*padded(k):][:padded(k)]
		f.k.widen(row[:k], whole, p.B, n*p.B.Stride+k0)
		clear(row[k:])
	}
	return floats(wide, 0)
}
