package gemm

import (
	"sync/atomic"
	"unsafe"
)

// turned computes a call of some rows whose operands B have their k side by side, such
// as x·Wᵀ with the weights of a checkpoint, by tiles and as Cᵀ = Σ op(B)ᵀ·op(A)ᵀ: rows of B
// are rows of a tile as they lie, and what has to be transposed, A and the result,
// is small. Each task takes a range of columns of C, a panel of them at a time, of
// which a stretch of k is packed and multiplied with all rows of A while it is in the
// nearest cache.
//
// The order in which an element is summed does not depend on M here.
type turned struct {
	*job
	kern   *kernels // as turns has them
	groups int      // of rows of A, kern.nr each
	panels int      // of columns of C
	tasks  int
	depth  int   // length of the k axis in words
	starts []int // where each pair begins there
	a      []float32
	wild   atomic.Bool // A is not all finite

	pack, task func(i int)
}

// turnKernels are what tiles have for turned. Rows are those of B, cols those of A.
type turnKernels struct {
	// tile computes sums[rows,cols] = (sums if add) + a·b for panels a of B and b of
	// A, a of pieces like b if apart; rows are more than mr/2, those of sums nr
	// apart, and free has room for as many. It fetches turnBytes of each of some rows
	// of the address next, ldnext bytes apart: fetches tells of how many.
	tile    func(rows, cols, k int, apart bool, a, b, sums, free unsafe.Pointer, add bool, next uintptr, ldnext int)
	fetches func(k int, apart bool) int

	// back computes C[cols,rows] = (C if add) + bias + the transpose of such sums.
	back func(rows, cols int, sums, free, c unsafe.Pointer, ldc int, add bool, bias unsafe.Pointer)

	// finite is packA for float32 with k side by side that are finite, and will be
	// multiplied with what is; it reports whether they are.
	finite func(dst unsafe.Pointer, rows int, src unsafe.Pointer, row, k int, alpha float32) bool

	least, most int // rows of A that a call has
}

const (
	turnWhole = 128  // words of a panel of B that are packed at a time: it stays in the nearest cache
	turnApart = 64   // and of one that is taken apart
	turnDeep  = 1024 // words between two updates of C, of which A stays in the second-level cache
	turnBytes = 512  // of a row of B that are fetched at a time
)

func (f *turned) bind(j *job) {
	f.job = j
	f.pack, f.task = f.packRows, f.columns
	f.starts = make([]int, 0, usualPairs)
}

// turns is the kernels by which turned computes a call, nil if it is none for it.
func (k *kernels) turns(c *Call, rounds bool) *kernels {
	if k.sixths == nil || c.M <= rowsFew || c.N <= colsThin {
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
		if !p.B.Trans || p.A.Trans || p.A.Elem != F32 || p.FilterA != nil || p.FilterB != nil {
			return nil
		}
		if kern.pieces > 0 && !kern.apart(p) && p.Alpha != 1 {
			return nil // alpha·B is more than a bfloat16
		}
		if p.B.Elem == F16 && !rounds && c.M < sixthsRows {
			return nil // a grid is faster
		}
		long = long || p.K > thirdsRank
	}
	if !long {
		return nil
	}
	return kern
}

func (f *turned) run() {
	c := f.c
	f.groups = ceil(c.M, f.kern.nr)
	f.depth, f.starts = 0, f.starts[:0]
	for i := range c.Pairs {
		f.starts = append(f.starts, f.depth)
		f.depth += f.kern.pairWords(&c.Pairs[i])
	}
	f.a = f.job.memory.take(f.groups*f.groupFloats(f.depth) + packSlack)
	f.wild.Store(false)
	f.spread(f.groups*len(c.Pairs), f.pack)
	f.panels = ceil(c.N, f.kern.mr)
	f.tasks = min(f.panels, f.shares(4))
	f.spread(f.tasks, f.task)
}

// groupFloats is what so many words of a group of rows of A take.
func (f *turned) groupFloats(words int) int { return f.kern.panelFloats(words) * f.kern.nr }

// stretch is how many words of B of a pair are packed at a time.
func (f *turned) stretch(p *Pair) int {
	if f.kern.apart(p) {
		return turnApart
	}
	return turnWhole
}

// packRows packs a group of rows of A of a pair.
func (f *turned) packRows(i int) {
	x, g := i%len(f.c.Pairs), i/len(f.c.Pairs)
	p := &f.c.Pairs[x]
	if p.idle() {
		return
	}
	row, col := p.A.steps()
	m, nr := g*f.kern.nr, f.kern.nr
	rows, src := min(nr, f.c.M-m), at(p.A.Data, m*row)
	to := floats(f.a, g*f.groupFloats(f.depth)+f.groupFloats(f.starts[x]))
	if f.kern.pieces == 0 {
		f.kern.pack(to, nr, src, F32, row, col, rows, p.K, p.Alpha)
		return
	}
	const finiteB = false // it may be anything
	if !f.kern.packApart(to, nr, src, F32, row, col, rows, p.K, finiteB) && f.kern.apart(p) {
		f.wild.Store(true)
	}
}

// columns computes the panels of task i.
func (f *turned) columns(i int) {
	s := f.scratch()
	defer f.release(s)
	first, last := i*f.panels/f.tasks, (i+1)*f.panels/f.tasks
	for k0 := 0; k0 < f.depth; k0 += turnDeep {
		for n := first; n < last; n++ {
			f.panel(s, k0, min(f.depth, k0+turnDeep), n*f.c.N/f.panels, (n+1)*f.c.N/f.panels)
		}
	}
}

// panel adds the words [k0,k1) of the k axis to columns [n0,n1) of C.
func (f *turned) panel(s *scratch, k0, k1, n0, n1 int) {
	c, t := f.c, f.kern.turned
	size := f.kern.mr * f.kern.nr
	sums := s.a.take((f.groups + 1) * size)
	free := floats(sums, f.groups*size)
	for x := range c.Pairs {
		p, start := &c.Pairs[x], f.starts[x]
		end, step, apart := min(k1, start+f.kern.pairWords(p)), f.stretch(p), f.kern.apart(p)
		for k := max(k0, start); k < end; k += step {
			words := min(step, end-k)
			first := (k - start) * f.kern.pairSize
			b := f.packB(s, p, n0, n1, first, min(p.K, first+words*f.kern.pairSize))
			next, ldnext := f.fetch(p, n0, n1, first+words*f.kern.pairSize, min(p.K, (end-start)*f.kern.pairSize), f.groups*t.fetches(words, apart))
			for g := range f.groups {
				t.tile(n1-n0, min(f.kern.nr, c.M-g*f.kern.nr), words, apart, b,
					floats(f.a, g*f.groupFloats(f.depth)+f.groupFloats(k)), floats(sums, g*size), free, k > k0, next, ldnext)
				next += uintptr(t.fetches(words, apart) * ldnext)
			}
		}
	}
	for g := range f.groups {
		m, bias := g*f.kern.nr, unsafe.Pointer(nil)
		if k0 == 0 {
			bias = c.biasAt(n0)
		}
		t.back(n1-n0, min(f.kern.nr, c.M-m), floats(sums, g*size), free, floats(c.C, m*c.LDC+n0), c.LDC, c.Accumulate || k0 > 0, bias)
	}
}

// turnFloats is what a panel of B takes.
func (k *kernels) turnFloats() int { return max(turnWhole, k.panelFloats(turnApart)) * k.mr }

// packB packs the elements [first,last) of rows [n0,n1) of B of a pair, as rows of
// A are packed elsewhere.
func (f *turned) packB(s *scratch, p *Pair, n0, n1, first, last int) unsafe.Pointer {
	to := floats(s.b.take(f.kern.turnFloats()), 0)
	rows, k, elem, row := n1-n0, last-first, p.B.Elem, p.B.Stride*p.B.Elem.Size()
	src := at(p.B.Data, n0*row+first*elem.Size())
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

// fetch says where B of a pair goes on behind element last of rows [n0,n1), of which there
// are as many as end, and how far apart rows are there: 0 where nothing is to be
// fetched. It fetches those behind the first few. The address is no pointer, for there may be
// less of B than tiles fetch.
func (f *turned) fetch(p *Pair, n0, n1, last, end, few int) (next uintptr, row int) {
	if p.B.Elem.Quantized() {
		return uintptr(p.B.Data), 0
	}
	rows := n1 - n0
	if last >= end {
		n0, last = n1, 0
	}
	row, last = p.B.Stride*p.B.Elem.Size(), last*p.B.Elem.Size()
	first, behind := n0+few, min(n0+rows, f.c.N)
	switch {
	case first >= behind:
	case row <= turnBytes: // as that of an adapter, whose rows are one piece of memory
		f.job.k.fetch(at(p.B.Data, first*row), (behind-first)*row)
	default:
		for n := first; n < behind; n++ {
			f.job.k.fetch(at(p.B.Data, n*row+last), turnBytes)
		}
	}
	return uintptr(p.B.Data) + uintptr(n0*row+last), row
}
