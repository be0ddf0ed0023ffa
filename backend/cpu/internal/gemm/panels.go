package gemm

import (
	"sync/atomic"
	"unsafe"
)

// panelsWay multiplies many rows: B is packed into panels that stay in cache while all
// rows of A pass by them.
type panelsWay struct{}

// panels is a call on that way. All workers pack A once, into panels of mr rows. Then each task processes a block of
// columns: it packs B one block of k at a time, and runs the tile kernel over all panels. The pairs are concatenated
// along one k axis, so a low-rank pair lengthens the last block instead of needing a pass over C; pairs whose B is
// split come last.
type panels struct {
	*job
	kern   *kernels // kernels of the job, or of another family
	depth  int      // length of the k axis in words
	whole  int      // number of leading pairs whose B is not split
	thin   bool     // a few rows of A, by tiles
	starts []int    // where each pair begins there
	panels int      // of A, in this block of rows
	row0   int      // first row of the block
	rows   int      // of the block
	cols   int      // of B per task, a multiple of nr
	colN   int      // tasks along N
	rowN   int      // tasks along the panels
	packN  int      // tasks that pack A
	a      []float32

	wild atomic.Bool // A is split and has an element that is not finite

	kept, before kept // what a holds now, and held when the call began
	first        int  // words of A that are packed already

	downs []down // computed while A is packed
	downB buffer // their B

	packTask, tileTask, downTask func(i int)
}

// blockCols is the maximum number of columns of B per task: with kc it fits the second-level cache of a core. If only
// few rows of A are multiplied with the rows of B, such as x in dhᵀ·x, a task processes thinCols columns and thinDeep
// words of k at a time: each row is read in a long run, and C stays in that cache.
const (
	blockCols = 512
	thinCols  = 2048
	thinDeep  = 64
)

// If there are few panels of rows, packing B takes a large part of the time; a task's packed B for one block of k
// then stays in the second-level cache.
const (
	fewPanels    = 8
	narrowFloats = 64 << 10
)

// kept identifies the part of A that the panels hold after a call. The next call of a RunAll with the same x, such as
// k after q, need not pack it again.
type kept struct {
	kern     *kernels
	m, depth int
	a        Matrix
	k        int
	alpha    float32
}

func (p *panels) bind(j *job) {
	p.job = j
	p.packTask, p.tileTask, p.downTask = p.packRows, p.tiles, p.packDown
	p.starts = make([]int, 0, usualPairs)
	p.downs = make([]down, 0, usualPairs)
}

func (panelsWay) run(j *job) { j.panels.run() }

func (p *panels) run() {
	p.kern = p.job.k.forFamily(p.shape.panels())
	p.thin = p.shape.thin()
	p.layOut()
	p.packDowns()
	most := max(p.kern.mr, p.e.panelsMost/p.kern.panelFloats(p.depth)/p.kern.mr*p.kern.mr)
	for p.row0 = 0; p.row0 < p.c.M; p.row0 += p.rows {
		p.rows = min(most, p.c.M-p.row0)
		p.panels = ceil(p.rows, p.kern.mr)
		p.divide()
		p.a = p.job.memory.alloc(p.rows*p.kern.panelFloats(p.depth) + p.panels*(packSlack+1))
		p.packN = min(p.panels, p.shares(4))
		if p.reuse(); p.first == 0 {
			p.wild.Store(false)
		}
		if p.first < p.depth {
			p.spread(p.packN, p.packTask)
		}
		p.spread(p.colN*p.rowN, p.tileTask)
	}
}

func (panelsWay) need(s *shape) (need Scratch) {
	for _, family := range s.families() {
		need = need.With(s.e.k.forFamily(family).needPanels(s))
	}
	return need
}

// needPanels returns the memory that panels of these kernels need.
func (k *kernels) needPanels(s *shape) (need Scratch) {
	depth, apart, cols := 0, 0, ceil(s.N, k.nr)*k.nr
	for i := range s.Pairs {
		p := &s.Pairs[i]
		words := k.pairWords(p)
		depth += words
		if k.splitsB(p) {
			apart += words
		}
		if p.B.Elem.Quantized() {
			wide := max(k.nr*padded(min(p.K, k.kc*k.pairSize)), widenRows*padded(min(s.N, blockCols)))
			need.Task.Wide = max(need.Task.Wide, wide+quantBlock)
		}
	}
	row := k.panelFloats(depth)
	need.Call = min(s.M*row, max(s.e.panelsMost, k.mr*row)) + ceil(s.M, k.mr)*(packSlack+1)
	need.Task.B = min(cols, blockCols)*(min(padded(depth), k.kc)+min(apart, k.kc)*(k.perWord()-1)) + packSlack
	block := blockCols
	if s.transA {
		if k.inTiles() {
			block = thinCols
		}
		need.Task.B = max(need.Task.B, min(cols, block)*min(padded(depth), thinDeep)+packSlack)
	}
	need.Task.C = k.blockFloats(s.Call, block)
	if s.hasFilters() {
		need.Task.Wide = max(need.Task.Wide, k.mr*filterDeep, widenRows*padded(min(s.N, block))+quantBlock)
	}
	return need
}

// layOut assigns each pair its position on the k axis.
func (p *panels) layOut() {
	p.depth, p.whole, p.starts = 0, 0, p.starts[:0]
	for i := range p.c.Pairs {
		if pair := &p.c.Pairs[i]; !p.kern.splitsB(pair) {
			p.whole += p.kern.pairWords(pair)
		}
	}
	apart := p.whole
	for i := range p.c.Pairs {
		pair, place := &p.c.Pairs[i], &p.depth
		if p.kern.splitsB(pair) {
			place = &apart
		}
		p.starts = append(p.starts, *place)
		*place += p.kern.pairWords(pair)
	}
	p.depth = apart
}

// column returns the offset in floats, in a column of B, of word k of the k axis: split words have several floats.
func (p *panels) column(k int) int {
	return k + max(0, k-p.whole)*(p.kern.perWord()-1)
}

// reuse finds out how much of A is packed already.
func (p *panels) reuse() {
	p.first, p.kept = 0, kept{}
	if p.rows < p.c.M { // block by block: the last is left
		return
	}
	for i := range p.c.Pairs {
		pair := &p.c.Pairs[i]
		if pair.idle() || p.starts[i] > 0 {
			continue
		}
		if pair.FilterA != nil {
			return // which the next may have another one of
		}
		p.kept = kept{p.kern, p.c.M, p.depth, pair.A, pair.K, pair.Alpha}
		if p.kept == p.before {
			p.first = p.kern.pairWords(pair)
		}
		return
	}
}

// divide chooses the tasks: blocks of columns, and groups of panels where
// there are fewer of these than workers. Neither changes the order in which
// an element is summed.
func (p *panels) divide() {
	groups := ceil(p.c.N, p.kern.nr) // of columns
	p.cols = p.taskGroups(groups) * p.kern.nr
	p.colN = ceil(p.c.N, p.cols)
	p.rowN = 1
	if p.colN < p.workers {
		p.rowN = min(p.panels, ceil(p.workers, p.colN))
	}
	if p.c.Stored != nil { // a task keeps its block of C
		p.rowN = max(p.rowN, min(p.panels, ceil(p.rows*min(p.cols, p.c.N), storedFloats)))
	}
}

// taskGroups returns the number of column groups, nr each, per task: as many as fit blockCols. If smaller tasks are
// as fast, it returns fewer, but at least half, to balance the workers. Tasks with few panels of rows finish B
// quickly, so they are limited to the second-level cache, unless they would read short runs of its rows.
func (p *panels) taskGroups(groups int) int {
	block, smaller := blockCols, p.kern.smaller
	switch {
	case p.thin:
		block, smaller = thinCols, false
	case smaller && p.panels <= fewPanels && p.c.readsAlong():
		fits := narrowFloats / p.kern.blockLength(p.depth) / p.kern.nr * p.kern.nr
		block, smaller = min(block, max(2*p.kern.nr, fits)), false
	}
	rounds := ceil(ceil(groups*p.kern.nr, block), p.workers) // tasks of each worker
	each := ceil(groups, rounds*p.workers)
	if !smaller {
		return each
	}
	best := rounds * each
	for n := rounds + 1; ; n++ {
		g := ceil(groups, n*p.workers)
		if g*p.kern.nr < blockCols/2 {
			return each
		}
		if n*g <= best {
			best, each = n*g, g
		}
	}
}

// panelRow returns the first row of panel i within the block of rows, which is the end of panel i-1. Panels differ by
// at most one grain.
func (p *panels) panelRow(i int) int {
	return min(p.rows, i*ceil(p.rows, p.kern.grain)/p.panels*p.kern.grain)
}

// panel returns panel i of A, [depth][rows of the panel] words, with its rows.
func (p *panels) panel(i int) (data []float32, r0, r1 int) {
	r0, r1 = p.panelRow(i), p.panelRow(i+1)
	return p.a[r0*p.kern.panelFloats(p.depth)+i*(packSlack+1):], r0, r1
}

// packRows packs the panels of task i.
func (p *panels) packRows(i int) {
	for n := i * p.panels / p.packN; n < (i+1)*p.panels/p.packN; n++ {
		dst, r0, r1 := p.panel(n)
		p.packPairs(dst, r0, r1, false)
		for i := range p.downs {
			p.down(&p.downs[i], dst, r0, r1)
		}
		p.packPairs(dst, r0, r1, true)
	}
}

// packPairs packs a panel of A: of the pairs that read what downs give, or of all others.
func (p *panels) packPairs(dst []float32, r0, r1 int, ofDowns bool) {
	for x := range p.c.Pairs {
		pair := &p.c.Pairs[x]
		if pair.idle() || p.starts[x] < p.first || p.isDown(pair) != ofDowns {
			continue
		}
		to := floats(dst, p.kern.panelFloats(p.starts[x])*(r1-r0))
		if pair.FilterA != nil {
			p.packFiltered(to, pair, r0, r1)
		} else {
			row, _ := pair.A.steps()
			p.packPanel(to, r1-r0, pair, &pair.A, at(pair.A.Data, (p.row0+r0)*row), pair.K)
		}
	}
}

// packPanel packs k elements of rows rows of op(A) from src on, in the layout of m.
func (p *panels) packPanel(to unsafe.Pointer, rows int, pair *Pair, m *Matrix, src unsafe.Pointer, k int) {
	row, col := m.steps()
	if p.kern.packA != nil {
		if !p.kern.packA(to, rows, src, m.Elem, row, col, k, pair.Alpha) {
			p.wild.Store(true)
		}
		return
	}
	p.kern.pack(to, rows, src, m.Elem, row, col, rows, k, pair.Alpha)
}

// filterDeep is the number of elements per row of a panel of A that are filtered at a time: whole runs.
const filterDeep = 512

// packFiltered packs rows [r0,r1) of A after its filter.
func (p *panels) packFiltered(to unsafe.Pointer, pair *Pair, r0, r1 int) {
	s := p.scratch()
	defer p.release(s)
	wide := s.wide.alloc((r1 - r0) * filterDeep)
	m := Of(wide, filterDeep)
	for t := 0; t < pair.K; t += filterDeep {
		k := min(filterDeep, pair.K-t)
		filtered(wide, filterDeep, pair.FilterA, &pair.A, p.row0+r0, p.row0+r1, t, t+k)
		p.packPanel(at(to, F32.Size()*p.kern.panelFloats(t/p.kern.pairSize)*(r1-r0)), r1-r0, pair, &m, m.Data, k)
	}
}

// tiles computes the block of C of task i.
func (p *panels) tiles(i int) {
	s := p.scratch()
	defer p.release(s)
	c, nr := p.c, p.kern.nr
	n0 := i % p.colN * p.cols
	n1 := min(c.N, n0+p.cols)
	first, last := i/p.colN*p.panels/p.rowN, (i/p.colN+1)*p.panels/p.rowN
	m0, m1 := p.row0+p.panelRow(first), p.row0+p.panelRow(last)
	to := p.blockOf(s, m0, m1, n0, n1)

	stretch := p.kern.blockLength(p.depth)
	if p.thin {
		stretch = thinDeep
	}
	for k0 := 0; k0 < p.depth; k0 += stretch {
		k := min(stretch, p.depth-k0)
		b, step := p.ready(k0, k, n0)
		if b == nil {
			step = p.column(k0+k) - p.column(k0)
			b = s.b.alloc(ceil(n1-n0, nr)*nr*step + packSlack)
			p.packCols(s, b, k0, k, n0, n1)
		}
		p.multiply(b, step, k0, k, n0, n1, first, last, &to)
	}
	if c.Stored != nil {
		c.storeBlock(to.c, to.ld, m0, m1, n0, n1)
	}
}

// multiply adds k words from k0 on to panels [first,last) of rows of C and columns [n0,n1), which are computed in a
// block. If b exceeds the second-level cache, a few panels of rows are multiplied with each panel of b in turn;
// otherwise each panel of rows with all of b.
func (p *panels) multiply(b []float32, step, k0, k, n0, n1, first, last int, block *block) {
	const fits = 256 << 10
	c, nr := p.c, p.kern.nr
	add, whole := c.Accumulate || k0 > 0, max(0, min(k, p.whole-k0))
	tile := func(s band, col, ahead int) {
		bias := unsafe.Pointer(nil)
		if k0 == 0 {
			bias = c.biasAt(col)
		}
		from, to, cols := floats(b, (col-n0)*step), at(s.c, (col-n0)*F32.Size()), min(nr, n1-col)
		if p.kern.pieces != nil {
			p.kern.pieces.tile(s.rows, whole, k-whole, s.a, from, to, block.ld, cols, add, bias, ahead)
			return
		}
		p.kern.tile(s.rows, k, s.a, from, to, block.ld, cols, add, bias, ahead)
	}
	finish := func(first, last band) {
		if k0+k == p.depth && c.Stored == nil {
			c.finish(first.row, last.row+last.rows, n0, n1)
		}
	}
	if last-first <= fewPanels && step*(n1-n0) > fits {
		var few [fewPanels]band
		bands := few[:last-first]
		for i := range bands {
			bands[i] = p.band(first+i, k0, n0, block)
		}
		for col := n0; col < n1; col += nr {
			for _, s := range bands {
				tile(s, col, 0)
			}
		}
		finish(bands[0], bands[len(bands)-1])
		return
	}
	for n := first; n < last; n++ {
		s, col := p.band(n, k0, n0, block), n0
		next := 4 * (s.rows*p.kern.panelFloats(p.depth) + packSlack + 1)
		if tiles := (n1 - n0) / nr; tiles > 0 && p.kern.tiles != nil && (k0 > 0 || c.Bias == nil) {
			p.kern.tiles(s.rows, k, s.a, floats(b, 0), step*nr, s.c, block.ld, tiles, add, next)
			col += tiles * nr
		}
		for ; col < n1; col += nr {
			tile(s, col, next)
		}
		finish(s, s)
	}
}

// band holds the common arguments of the tiles of one panel of A: its rows of C, its elements along k, and the
// address of these rows.
type band struct {
	row, rows int
	a, c      unsafe.Pointer
}

// band returns panel i from word k0 of the k axis and column n0 of C on.
func (p *panels) band(i, k0, n0 int, block *block) band {
	a, r0, r1 := p.panel(i)
	row := p.row0 + r0
	return band{row, r1 - r0, floats(a, p.kern.panelFloats(k0)*(r1-r0)), block.at(row, n0)}
}

// packCols packs columns [n0,n1) of B for k words of the k axis from k0, into
// panels [k][nr].
func (p *panels) packCols(s *scratch, b []float32, k0, k, n0, n1 int) {
	step := p.column(k0+k) - p.column(k0)
	for x := range p.c.Pairs {
		pair, start := &p.c.Pairs[x], p.starts[x]
		words := p.kern.pairWords(pair)
		from, to := max(k0, start), min(k0+k, start+words)
		if from >= to {
			continue
		}
		first := (from - start) * p.kern.pairSize
		last := min(pair.K, (to-start)*p.kern.pairSize)
		begin := p.column(from) - p.column(k0)
		switch {
		case p.matches(pair.Ready):
			p.copyReady(b, pair, begin, step, from-start, to-start, n0, n1)
		case pair.B.Elem.Quantized() || pair.FilterB != nil:
			p.packComputed(s, b, pair, begin, step, first, last, n0, n1)
		default:
			p.packB(b[begin*p.kern.nr:], pair, &pair.B, step, first, last, n0, n1)
		}
	}
}

// packB packs rows [first,last) of columns [n0,n1) of op(B) of a pair, in the layout of m, into panels whose columns
// are step floats apart.
func (p *panels) packB(b []float32, pair *Pair, m *Matrix, step, first, last, n0, n1 int) {
	nr, apart, finite := p.kern.nr, p.kern.splitsB(pair), !p.wild.Load()
	row, col := m.steps()
	src := func(t, n int) unsafe.Pointer { return at(m.Data, t*row+n*col) }
	pack := func(b []float32, t, n int) {
		lanes := min(nr, n1-n)
		if apart {
			p.kern.pieces.pack(floats(b, 0), nr, src(t, n), m.Elem, col, row, lanes, last-t, finite)
		} else {
			p.kern.pack(floats(b, 0), nr, src(t, n), m.Elem, col, row, lanes, last-t, 1)
		}
	}
	n := n0
	if panels := (n1 - n0) / nr; panels > 1 && !m.Trans && p.kern.across != nil {
		run := max(1, p.kern.run)
		whole := (last - first) / (run * p.kern.pairSize) * run
		odd := first + whole*p.kern.pairSize // the rows that make no whole run, if any
		if apart {
			p.kern.pieces.across(floats(b, 0), step*nr, src(first, n0), m.Elem, row, panels, odd-first, finite)
		} else {
			p.kern.across(floats(b, 0), step*nr, src(first, n0), m.Elem, row, panels, odd-first)
		}
		for ; n < n0+panels*nr; n += nr {
			if odd < last {
				pack(b[(n-n0)*step+p.kern.columnFloats(pair, whole)*nr:], odd, n)
			}
		}
	}
	for ; n < n1; n += nr {
		pack(b[(n-n0)*step:], first, n)
	}
}
