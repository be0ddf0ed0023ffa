package gemm

import (
	"sync/atomic"
	"unsafe"
)

// tilesWay multiplies a few rows (2 to 127) with checkpoint weights on AMX: it computes Cᵀ = Bᵀ·Aᵀ, so that rows of
// the weight are rows of a tile in place, without packing.
type tilesWay struct {
	// fewColumns is set for x·Aᵀ of an adapter, whose first operand is the large one: the operands are swapped, and C
	// is computed instead of Cᵀ. x is read once, and a filter is applied on the way.
	fewColumns bool
}

// tilesTransposed is a call on that way. Only small matrices are transposed: A and the result. Each task computes a
// range of columns of C, one panel at a time. Tiles read bfloat16 in place, at memory speed. For any other B a packed
// block of k is multiplied with all rows of A while it is in the first-level cache.
//
// The order of summation depends on M only by whether there are at most rowsFew rows, at most kern.nr, or more.
type tilesTransposed struct {
	*job
	kern       *kernels // kernels of the family
	fewColumns bool     // see tilesWay
	v          *Call    // the call, or swapped
	swapped    Call
	pieceRows  int // rows per row of A: its pieces, if A has few rows
	groups     int // of rows of A, kern.nr each
	panels     int // of columns of C
	tasks      int
	depth      int   // length of the k axis in words
	starts     []int // where each pair begins there
	update     int   // words between two updates of C
	a          []float32
	wild       atomic.Bool // A is not all finite

	pack, task func(i int)
}

const (
	tilesWhole = 128  // words of a panel of B that are packed at a time: it stays in the nearest cache
	tilesApart = 64   // and of one that is taken apart
	tilesDeep  = 1024 // words between two updates of C, whose part of A stays in the second-level cache
	tilesLong  = 4096 // if tiles read B in place, in rows of maximum length
	tilesSums  = 512  // and between two of a sum that is not of rounded operands
	tilesBytes = 512  // of a row of B that are fetched at a time
	tilesShort = 2048 // bytes of a row that tiles read in place: the hardware prefetches longer ones
)

func (f *tilesTransposed) bind(j *job) {
	f.job = j
	f.pack, f.task = f.packRows, f.computeTask
	f.starts = make([]int, 0, usualPairs)
	f.swapped.Pairs = make([]Pair, 0, usualPairs)
}

func (tilesWay) run(j *job) { j.spread(j.tilesTransposed.divide(), j.tilesTransposed.task) }

func (tilesWay) need(s *shape) (need Scratch) {
	for _, family := range s.families() {
		k := s.e.k.forFamily(family)
		if k.transposed == nil {
			continue
		}
		depth := 0
		for i := range s.Pairs {
			depth += k.pairWords(&s.Pairs[i])
		}
		_, most := tilesRows(family)
		groups, rows := ceil(max(min(s.M, most), min(s.N, colsThin)), k.nr), most
		if s.N <= colsThin {
			rows = s.M
		}
		n := Scratch{
			Whole: s.wholeFloats(rows),
			Call:  groups*k.nr*k.panelFloats(depth) + packSlack,
			Task:  TaskScratch{Small: (groups + 1) * k.mr * k.nr, B: k.tilesFloats(), Wide: tilesWhole*k.pairSize*k.mr + quantBlock},
		}
		if s.hasFilters() {
			n.Task.Wide = max(n.Task.Wide, k.mr*tilesDeep*k.pairSize)
		}
		need = need.With(n)
	}
	return need
}

// view returns the call as tiles compute it: with swapped operands if it has few columns.
func (f *tilesTransposed) view() *Call {
	f.v = f.c
	if f.fewColumns {
		f.swapped = f.c.transposed(f.swapped.Pairs)
		f.v = &f.swapped
	}
	return f.v
}

// divide packs A and returns the number of tasks.
func (f *tilesTransposed) divide() int {
	f.fewColumns = f.on.way.(tilesWay).fewColumns
	f.kern = f.job.k.forFamily(f.shape.tilesFamily(f.fewColumns))
	c := f.view()
	f.pieceRows = 1
	if f.kern.transposed.parted != nil && c.M <= rowsFew {
		f.pieceRows = pieceCount
	}
	f.groups = ceil(f.pieceRows*c.M, f.kern.nr)
	f.depth, f.starts, f.update = 0, f.starts[:0], tilesLong/f.groups
	for i := range c.Pairs {
		p := &c.Pairs[i]
		f.starts = append(f.starts, f.depth)
		f.depth += f.kern.pairWords(p)
		if p.K > rankMost && !f.inPlace(p) {
			f.update = tilesDeep
		}
	}
	f.a = f.job.memory.alloc(f.groups*f.groupFloats() + packSlack)
	f.wild.Store(false)
	f.spread(f.groups*len(c.Pairs), f.pack)
	f.panels = ceil(c.N, f.kern.mr)
	f.tasks = min(f.panels, f.shares(4))
	return f.tasks
}

// products returns the number of piece products per word product of a pair.
func (f *tilesTransposed) products(p *Pair) int {
	switch {
	case f.kern.splitsB(p):
		return 6
	case f.kern.pieces == nil || f.pieceRows > 1:
		return 1
	}
	return 3
}

// inPlace reports whether tiles read B of a pair in place: if it is bfloat16, unless it would be read again for each
// of several groups of rows whose floats are in pieces.
func (f *tilesTransposed) inPlace(p *Pair) bool {
	return p.B.Elem == BF16 && (f.groups == 1 || f.kern.pieces == nil)
}

// groupFloats returns the memory of a group of rows of A.
func (f *tilesTransposed) groupFloats() int { return f.kern.panelFloats(f.depth) * f.kern.nr }

// wordsPerBlock returns the number of words of B of a pair that are packed at a time.
func (f *tilesTransposed) wordsPerBlock(p *Pair) int {
	if f.kern.splitsB(p) || f.fewColumns { // tilesBytes of each row
		return tilesApart
	}
	return tilesWhole
}

// panelOfA returns group g of rows of A of pair x from word k on.
func (f *tilesTransposed) panelOfA(g, x, k int) unsafe.Pointer {
	if f.products(&f.v.Pairs[x]) > 1 {
		k = f.kern.panelFloats(k)
	}
	return floats(f.a, g*f.groupFloats()+(f.kern.panelFloats(f.starts[x])+k)*f.kern.nr)
}

// rows returns the number of rows of A in a group.
func (f *tilesTransposed) rows(g int) int { return min(f.kern.nr, f.v.M-g*f.kern.nr) }

// packRows packs a group of rows of A of a pair.
func (f *tilesTransposed) packRows(i int) {
	x, g := i%len(f.v.Pairs), i/len(f.v.Pairs)
	p := &f.v.Pairs[x]
	if p.idle() {
		return
	}
	row, col := p.A.steps()
	nr, rows, src, to := f.kern.nr, f.rows(g), at(p.A.Data, g*f.kern.nr*row), f.panelOfA(g, x, 0)
	const finiteB = false // it may be anything
	switch {
	case f.kern.pieces == nil:
		f.kern.pack(to, nr, src, p.A.Elem, row, col, rows, p.K, p.Alpha)
	case f.products(p) == 1:
		f.kern.transposed.parted(to, src, rows, row, p.K, p.Alpha)
	case !f.kern.pieces.pack(to, nr, src, F32, row, col, rows, p.K, finiteB) && f.kern.splitsB(p):
		f.wild.Store(true)
	}
}

// computeTask computes the panels of task i.
func (f *tilesTransposed) computeTask(i int) {
	s := f.scratch()
	defer f.release(s)
	first, last := i*f.panels/f.tasks, (i+1)*f.panels/f.tasks
	for k0 := 0; k0 < f.depth; k0 += f.update {
		for n := first; n < last; n++ {
			f.panel(s, k0, min(f.depth, k0+f.update), n*f.v.N/f.panels, (n+1)*f.v.N/f.panels)
		}
	}
}

// panel adds the words [k0,k1) of the k axis to columns [n0,n1) of C.
func (f *tilesTransposed) panel(s *scratch, k0, k1, n0, n1 int) {
	c, t := f.v, f.kern.transposed
	size := f.kern.mr * f.kern.nr
	sums := s.a.alloc((f.groups + 1) * size)
	free := floats(sums, f.groups*size)
	add := false
	for x := range c.Pairs {
		p, start := &c.Pairs[x], f.starts[x]
		k, end := max(k0, start), min(k1, start+f.kern.pairWords(p))
		if k >= end {
			continue
		}
		products, each := f.products(p), 1
		if products == 1 {
			each = f.pieceRows
		} else if f.pieceRows > 1 && !add { // tiles leave the other pieces alone
			clear(sums[:size])
			add = true
		}
		rows := f.rowsOf(s, p, n0, n1, k-start, end-start)
		for words := 0; k < end; k += words {
			var b unsafe.Pointer
			var lane int
			b, lane, words = f.read(s, p, &rows, n0, n1, k-start, end-start)
			next, ldnext := f.fetch(p, n0, n1, k-start+words, end-start, f.groups*t.fetches(words, products), free)
			for g := range f.groups {
				t.tile(n1-n0, each*f.rows(g), words, products, b, lane, f.panelOfA(g, x, k-start), floats(sums, g*size), free, add, next, ldnext)
				next += uintptr(t.fetches(words, products) * ldnext)
			}
			add = true
		}
	}
	add = f.c.Accumulate || k0 > 0
	bias := func(n int) unsafe.Pointer {
		if k0 > 0 {
			return nil
		}
		return f.c.biasAt(n)
	}
	for g := range f.groups {
		m, from := g*f.kern.nr, floats(sums, g*size)
		if f.fewColumns {
			t.add(n1-n0, f.rows(g), from, floats(f.c.C, n0*f.c.LDC+m), f.c.LDC, add, bias(m))
		} else {
			t.back(n1-n0, f.rows(g), f.pieceRows, from, free, floats(f.c.C, m*f.c.LDC+n0), f.c.LDC, add, bias(n0))
		}
	}
}

// rowsOfB is a few rows of B of a pair, from element first of each on: in place, or filtered.
type rowsOfB struct {
	data       unsafe.Pointer
	row, first int
}

// rowsOf returns the words [k,end) of rows [n0,n1) of B of a pair.
func (f *tilesTransposed) rowsOf(s *scratch, p *Pair, n0, n1, k, end int) rowsOfB {
	first, last, size := k*f.kern.pairSize, min(p.K, end*f.kern.pairSize), p.B.Elem.Size()
	if p.FilterB == nil {
		row := p.B.Stride * size
		return rowsOfB{at(p.B.Data, n0*row+first*size), row, first}
	}
	ld := last - first
	wide := s.wide.alloc((n1 - n0) * ld)
	filtered(wide, ld, p.FilterB, &p.B, n0, n1, first, last)
	return rowsOfB{floats(wide, 0), size * ld, first}
}

// read returns the next words of rows r for the tiles, from k on and before end: as many as can be read in place, or
// one packed block.
func (f *tilesTransposed) read(s *scratch, p *Pair, r *rowsOfB, n0, n1, k, end int) (b unsafe.Pointer, lane, words int) {
	pair, run := f.kern.pairSize, f.kern.run
	first, last := k*pair, min(p.K, end*pair)
	if whole := (last - first) / (run * pair) * run; whole > 0 && f.inPlace(p) {
		if f.kern.pieces != nil {
			whole = min(whole, tilesSums)
		}
		return at(r.data, (first-r.first)*p.B.Elem.Size()), r.row, whole
	}
	words = min(f.wordsPerBlock(p), end-k)
	return f.packB(s, p, r, n0, n1, first, min(last, first+words*pair)), 0, words
}

// tilesFloats returns the memory of a panel of B.
func (k *kernels) tilesFloats() int { return max(tilesWhole, k.panelFloats(tilesApart)) * k.mr }

// packB packs the elements [first,last) of rows of B. Here these are rows of a tile, which
// packA is for.
func (f *tilesTransposed) packB(s *scratch, p *Pair, r *rowsOfB, n0, n1, first, last int) unsafe.Pointer {
	to := floats(s.b.alloc(f.kern.tilesFloats()), 0)
	rows, k, elem, row := n1-n0, last-first, p.B.Elem, r.row
	src := at(r.data, (first-r.first)*elem.Size())
	apart := f.kern.splitsB(p)
	if elem != F32 && (apart || elem.Quantized()) {
		src, row, elem = f.widened(s, p, n0, n1, first, last)
	}
	switch {
	case f.kern.pieces == nil:
		f.kern.packA(to, rows, src, elem, row, elem.Size(), k, 1)
	case !apart:
		f.k.pairs.packA(to, rows, src, elem, row, elem.Size(), k, 1)
	case f.wild.Load() || !f.kern.transposed.finite(to, rows, src, row, k, p.Alpha):
		f.kern.packA(to, rows, src, elem, row, elem.Size(), k, p.Alpha)
	}
	return to
}

// widened returns float32 elements for packB if B has another type.
func (f *tilesTransposed) widened(s *scratch, p *Pair, n0, n1, first, last int) (src unsafe.Pointer, row int, elem Elem) {
	ld := tilesWhole * f.kern.pairSize
	wide, whole := s.widened((n1 - n0) * ld)
	if size := p.B.Elem.Size(); size > 0 {
		row = p.B.Stride * size
		f.job.k.pack(floats(wide, 0), ld, at(p.B.Data, n0*row+first*size), p.B.Elem, size, row, last-first, n1-n0, 1)
	} else {
		for n := n0; n < n1; n++ {
			f.job.k.widen(wide[(n-n0)*ld:][:last-first], whole, p.B, n*p.B.Stride+first)
		}
	}
	return floats(wide, 0), F32.Size() * ld, F32
}

// fetch returns the memory that tiles prefetch while they multiply the words before k of rows [n0,n1), which have end
// words: the address of the next words of B, and the distance between rows. The first few rows are prefetched by
// fetch itself. If there is nothing to prefetch, the distance is 0 and the address is hand. The address is not a
// pointer, since tiles may prefetch past the end of B.
func (f *tilesTransposed) fetch(p *Pair, n0, n1, k, end, few int, hand unsafe.Pointer) (next uintptr, row int) {
	size, rows, last := p.B.Elem.Size(), n1-n0, k*f.kern.pairSize
	row = p.B.Stride * size
	done, in := last >= min(p.K, end*f.kern.pairSize), f.inPlace(p)
	if p.B.Elem.Quantized() || in && (row > tilesShort || !done || n1 == f.v.N) {
		return uintptr(hand), 0
	}
	if done {
		n0, last = n1, 0
	}
	first, behind := n0+few, min(n0+rows, f.v.N)
	switch {
	case in: // rows are one run of memory
		if bytes, tiles := (behind-n0)*row, few*tilesBytes; tiles < bytes {
			f.job.k.fetch(at(p.B.Data, n0*row+tiles), bytes-tiles)
		}
		return uintptr(p.B.Data) + uintptr(n0*row), tilesBytes
	case first >= behind:
	case row <= tilesBytes: // such as rows of an adapter
		f.job.k.fetch(at(p.B.Data, first*row), (behind-first)*row)
	default:
		for n := first; n < behind; n++ {
			f.job.k.fetch(at(p.B.Data, n*row+last*size), tilesBytes)
		}
	}
	return uintptr(p.B.Data) + uintptr(n0*row+last*size), row
}
