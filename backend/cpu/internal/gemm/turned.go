package gemm

import (
	"sync/atomic"
	"unsafe"
)

// turned computes a call of some rows whose operands B have their k side by side, such
// as x·Wᵀ with the weights of a checkpoint, by tiles and as Cᵀ = Σ op(B)ᵀ·op(A)ᵀ: rows of B
// are rows of a tile as they lie, and what has to be transposed, A and the result,
// is small. Each task takes a range of columns of C, a panel of them at a time. Tiles
// read bfloat16 where it lies, at the speed of memory; of what they can't read, a
// stretch of k is packed and multiplied with all rows of A while it is in the nearest cache.
//
// A call of few columns is flat: see flats.
//
// The order in which an element is summed does not depend on M here, but for the
// ways of rowsFew rows, of kern.nr and of more.
type turned struct {
	*job
	kern    *kernels // as turns has them, or flats
	flat    bool     // the call is one of few columns: what is computed is C, and not Cᵀ
	v       *Call    // the call, or flipped
	flipped Call
	parts   int // rows that one of A is: its pieces, where it has few rows
	groups  int // of rows of A, kern.nr each
	panels  int // of columns of C
	tasks   int
	depth   int   // length of the k axis in words
	starts  []int // where each pair begins there
	deep    int   // words between two updates of C
	a       []float32
	wild    atomic.Bool // A is not all finite

	pack, task func(i int)
}

// turnKernels are what tiles have for turned. Rows are those of B, cols those of A.
type turnKernels struct {
	// tile computes sums[rows,cols] = (sums if add) + a·b for B, whose rows of a run are
	// lane bytes apart, or packed if that is 0, and a panel b of A: so many products of pieces for each word.
	// Rows are more than mr/2, those of sums nr apart, and free has room for as many.
	// It fetches turnBytes of each of some rows of the address next, ldnext bytes
	// apart: fetches tells of how many.
	tile    func(rows, cols, k, products int, a unsafe.Pointer, lane int, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int)
	fetches func(k, products int) int

	// back computes C[cols,rows] = (C if add) + bias + the transpose of such sums, of
	// each of whose columns there are so many parts, all first ones before the second.
	back func(rows, cols, parts int, sums, free, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// add computes C[rows,cols] = (C if add) + bias + such sums.
	add func(rows, cols int, sums, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// finite is packA for float32 with k side by side that are finite, and will be
	// multiplied with what is; it reports whether they are.
	finite func(dst unsafe.Pointer, rows int, src unsafe.Pointer, row, k int, alpha float32) bool

	// parted is pack for float32 with k side by side, each piece of at most rowsFew rows
	// as a row of its own, as back takes them.
	parted func(dst, src unsafe.Pointer, rows, row, k int, alpha float32)

	least, most int // rows of A that a call has
}

const (
	turnWhole = 128  // words of a panel of B that are packed at a time: it stays in the nearest cache
	turnApart = 64   // and of one that is taken apart
	turnDeep  = 1024 // words between two updates of C, of which A stays in the second-level cache
	turnLong  = 4096 // where tiles read B where it lies, in rows as long as can be
	turnSums  = 512  // and between two of a sum that is not of rounded operands
	turnBytes = 512  // of a row of B that are fetched at a time
	turnShort = 2048 // bytes of a row that tiles read where it lies: hardware fetches longer ones
)

func (f *turned) bind(j *job) {
	f.job = j
	f.pack, f.task = f.packRows, f.columns
	f.starts = make([]int, 0, usualPairs)
	f.flipped.Pairs = make([]Pair, 0, usualPairs)
}

// turns is the kernels by which turned computes a call, nil if it is none for it.
func (k *kernels) turns(c *Call, rounds bool) *kernels {
	if k.sixths == nil || c.N <= colsThin {
		return nil
	}
	kern, long := k.manyRows(c.Pairs, rounds), false
	if kern.turned == nil || c.M < kern.turned.least || c.M > kern.turned.most {
		return nil
	}
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		if !p.B.Trans || p.A.Trans || p.A.Elem != F32 && (p.A.Elem != BF16 || kern.pieces > 0) {
			return nil
		}
		if kern.pieces > 0 && !kern.apart(p) && p.Alpha != 1 {
			return nil // alpha·B is more than a bfloat16
		}
		if p.B.Elem == F16 && !rounds && c.M < sixthsRows || p.B.Elem != BF16 && p.K > thirdsRank && c.M <= rowsFew {
			return nil // a grid is faster
		}
		long = long || p.K > thirdsRank
	}
	if !long {
		return nil
	}
	return kern
}

// takes reports whether a call is one for turned, and gets ready to compute it.
func (f *turned) takes(c *Call) bool {
	f.kern, f.flat = f.job.k.turns(c, f.e.Rounds()), false
	if f.kern == nil {
		f.kern = f.job.k.flats(c, f.e.Rounds())
		f.flat = f.kern != nil
	}
	return f.kern != nil
}

func (f *turned) run() { f.spread(f.divide(), f.task) }

// divide packs A and returns the number of tasks.
func (f *turned) divide() int {
	c := f.view()
	f.parts = 1
	if f.kern.turned.parted != nil && c.M <= rowsFew {
		f.parts = f.kern.pieces
	}
	f.groups = ceil(f.parts*c.M, f.kern.nr)
	f.depth, f.starts, f.deep = 0, f.starts[:0], turnLong/f.groups
	for i := range c.Pairs {
		p := &c.Pairs[i]
		f.starts = append(f.starts, f.depth)
		f.depth += f.kern.pairWords(p)
		if p.K > thirdsRank && !f.inPlace(p) {
			f.deep = turnDeep
		}
	}
	f.a = f.job.memory.take(f.groups*f.groupFloats() + packSlack)
	f.wild.Store(false)
	f.spread(f.groups*len(c.Pairs), f.pack)
	f.panels = ceil(c.N, f.kern.mr)
	f.tasks = min(f.panels, f.shares(4))
	return f.tasks
}

// products is how many of pieces are multiplied for each word of a pair.
func (f *turned) products(p *Pair) int {
	switch {
	case f.kern.apart(p):
		return 6
	case f.kern.pieces == 0 || f.parts > 1:
		return 1
	}
	return 3
}

// inPlace reports whether tiles read B of a pair where it lies. They do so once, or
// in no time beside that of products of pieces.
func (f *turned) inPlace(p *Pair) bool {
	return p.B.Elem == BF16 && (f.groups == 1 || f.kern.pieces == 0)
}

// groupFloats is what a group of rows of A takes.
func (f *turned) groupFloats() int { return f.kern.panelFloats(f.depth) * f.kern.nr }

// stretch is how many words of B of a pair are packed at a time.
func (f *turned) stretch(p *Pair) int {
	if f.kern.apart(p) || f.flat { // turnBytes of each row
		return turnApart
	}
	return turnWhole
}

// panelOfA is group g of rows of A of pair x from word k of it on.
func (f *turned) panelOfA(g, x, k int) unsafe.Pointer {
	if f.products(&f.v.Pairs[x]) > 1 {
		k = f.kern.panelFloats(k)
	}
	return floats(f.a, g*f.groupFloats()+(f.kern.panelFloats(f.starts[x])+k)*f.kern.nr)
}

// rows is how many rows of A a group has.
func (f *turned) rows(g int) int { return min(f.kern.nr, f.v.M-g*f.kern.nr) }

// packRows packs a group of rows of A of a pair.
func (f *turned) packRows(i int) {
	x, g := i%len(f.v.Pairs), i/len(f.v.Pairs)
	p := &f.v.Pairs[x]
	if p.idle() {
		return
	}
	row, col := p.A.steps()
	nr, rows, src, to := f.kern.nr, f.rows(g), at(p.A.Data, g*f.kern.nr*row), f.panelOfA(g, x, 0)
	const finiteB = false // it may be anything
	switch {
	case f.kern.pieces == 0:
		f.kern.pack(to, nr, src, p.A.Elem, row, col, rows, p.K, p.Alpha)
	case f.products(p) == 1:
		f.kern.turned.parted(to, src, rows, row, p.K, p.Alpha)
	case !f.kern.packApart(to, nr, src, F32, row, col, rows, p.K, finiteB) && f.kern.apart(p):
		f.wild.Store(true)
	}
}

// columns computes the panels of task i.
func (f *turned) columns(i int) {
	s := f.scratch()
	defer f.release(s)
	first, last := i*f.panels/f.tasks, (i+1)*f.panels/f.tasks
	for k0 := 0; k0 < f.depth; k0 += f.deep {
		for n := first; n < last; n++ {
			f.panel(s, k0, min(f.depth, k0+f.deep), n*f.v.N/f.panels, (n+1)*f.v.N/f.panels)
		}
	}
}

// panel adds the words [k0,k1) of the k axis to columns [n0,n1) of C.
func (f *turned) panel(s *scratch, k0, k1, n0, n1 int) {
	c, t := f.v, f.kern.turned
	size := f.kern.mr * f.kern.nr
	sums := s.a.take((f.groups + 1) * size)
	free := floats(sums, f.groups*size)
	add := false
	for x := range c.Pairs {
		p, start := &c.Pairs[x], f.starts[x]
		k, end := max(k0, start), min(k1, start+f.kern.pairWords(p))
		if k >= end {
			continue
		}
		products, parts := f.products(p), 1
		if products == 1 {
			parts = f.parts
		} else if f.parts > 1 && !add { // tiles leave the other parts alone
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
				t.tile(n1-n0, parts*f.rows(g), words, products, b, lane, f.panelOfA(g, x, k-start), floats(sums, g*size), free, add, next, ldnext)
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
		if f.flat {
			t.add(n1-n0, f.rows(g), from, floats(f.c.C, n0*f.c.LDC+m), f.c.LDC, add, bias(m))
		} else {
			t.back(n1-n0, f.rows(g), f.parts, from, free, floats(f.c.C, m*f.c.LDC+n0), f.c.LDC, add, bias(n0))
		}
	}
}

// rowsOfB is rows of B of a pair, from an element on: as they lie, or after its filter.
type rowsOfB struct {
	data       unsafe.Pointer
	row, first int
}

// rowsOf is the words [k,end) of rows [n0,n1) of B of a pair.
func (f *turned) rowsOf(s *scratch, p *Pair, n0, n1, k, end int) rowsOfB {
	first, last, size := k*f.kern.pairSize, min(p.K, end*f.kern.pairSize), p.B.Elem.Size()
	if p.FilterB == nil {
		row := p.B.Stride * size
		return rowsOfB{at(p.B.Data, n0*row+first*size), row, first}
	}
	ld := last - first
	wide := s.wide.take((n1 - n0) * ld)
	filtered(wide, ld, p.FilterB, &p.B, n0, n1, first, last)
	return rowsOfB{floats(wide, 0), size * ld, first}
}

// read gives words of those rows, from k on and before end, for tiles: as many as there are
// where they lie, or a stretch that is packed.
func (f *turned) read(s *scratch, p *Pair, r *rowsOfB, n0, n1, k, end int) (b unsafe.Pointer, lane, words int) {
	pair, run := f.kern.pairSize, f.kern.run
	first, last := k*pair, min(p.K, end*pair)
	if whole := (last - first) / (run * pair) * run; whole > 0 && f.inPlace(p) {
		if f.kern.pieces > 0 {
			whole = min(whole, turnSums)
		}
		return at(r.data, (first-r.first)*p.B.Elem.Size()), r.row, whole
	}
	words = min(f.stretch(p), end-k)
	return f.packB(s, p, r, n0, n1, first, min(last, first+words*pair)), 0, words
}

// turnFloats is what a panel of B takes.
func (k *kernels) turnFloats() int { return max(turnWhole, k.panelFloats(turnApart)) * k.mr }

// packB packs the elements [first,last) of such rows as rows of A are packed elsewhere.
func (f *turned) packB(s *scratch, p *Pair, r *rowsOfB, n0, n1, first, last int) unsafe.Pointer {
	to := floats(s.b.take(f.kern.turnFloats()), 0)
	rows, k, elem, row := n1-n0, last-first, p.B.Elem, r.row
	src := at(r.data, (first-r.first)*elem.Size())
	apart := f.kern.apart(p)
	if elem != F32 && (apart || elem.Quantized()) {
		src, row, elem = f.widened(s, p, n0, n1, first, last)
	}
	switch {
	case f.kern.pieces == 0:
		f.kern.packA(to, rows, src, elem, row, elem.Size(), k, 1)
	case !apart:
		f.k.pairs.packA(to, rows, src, elem, row, elem.Size(), k, 1)
	case f.wild.Load() || !f.kern.turned.finite(to, rows, src, row, k, p.Alpha):
		f.kern.packA(to, rows, src, elem, row, elem.Size(), k, p.Alpha)
	}
	return to
}

// widened is what packB packs as float32.
func (f *turned) widened(s *scratch, p *Pair, n0, n1, first, last int) (src unsafe.Pointer, row int, elem Elem) {
	ld := turnWhole * f.kern.pairSize
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

// fetch says where B of a pair goes on behind word k of rows [n0,n1), of which there are as
// many as end, and how far apart pieces are there: 0 where nothing is to be fetched, and
// the address is that of what is at hand. It fetches those behind the first few. The
// address is no pointer, for there may be less of B than tiles fetch.
func (f *turned) fetch(p *Pair, n0, n1, k, end, few int, hand unsafe.Pointer) (next uintptr, row int) {
	size, rows, last := p.B.Elem.Size(), n1-n0, k*f.kern.pairSize
	row = p.B.Stride * size
	done, in := last >= min(p.K, end*f.kern.pairSize), f.inPlace(p)
	if p.B.Elem.Quantized() || in && (row > turnShort || !done || n1 == f.v.N) {
		return uintptr(hand), 0
	}
	if done {
		n0, last = n1, 0
	}
	first, behind := n0+few, min(n0+rows, f.v.N)
	switch {
	case in: // rows are one piece of memory
		if bytes, tiles := (behind-n0)*row, few*turnBytes; tiles < bytes {
			f.job.k.fetch(at(p.B.Data, n0*row+tiles), bytes-tiles)
		}
		return uintptr(p.B.Data) + uintptr(n0*row), turnBytes
	case first >= behind:
	case row <= turnBytes: // as those of an adapter
		f.job.k.fetch(at(p.B.Data, first*row), (behind-first)*row)
	default:
		for n := first; n < behind; n++ {
			f.job.k.fetch(at(p.B.Data, n*row+last*size), turnBytes)
		}
	}
	return uintptr(p.B.Data) + uintptr(n0*row+last*size), row
}
