package gemm

import (
	"slices"
	"unsafe"
)

// fewColumnsWay multiplies many rows with a few columns, such as x·Aᵀ of an adapter: x is read once, in place, and
// only the small operand is packed.
type fewColumnsWay struct{}

// fewColumns is a call on that way: a strip of rows of A is multiplied with all columns of B
// while it is in cache. Each task takes a range of rows.
type fewColumns struct {
	*job
	columnGroups
	rows  int         // per task
	b     [][]float32 // op(B) of each pair, group after group as the kernel takes it
	packs []int       // the pairs that have one
	task  func(i int)
	pack  func(i int)
}

const (
	stripDeep  = 512       // longest run of k in words between two updates of C: B of a group stays in the nearest cache
	stripBytes = 192 << 10 // bytes of a strip; two strips fit into the second-level cache
)

func (f *fewColumns) bind(j *job) {
	f.job = j
	f.task = f.computeTask
	f.pack = f.packGroup
	f.b, f.packs = make([][]float32, 0, usualPairs), make([]int, 0, usualPairs)
}

func (fewColumnsWay) run(j *job) { j.fewColumns.run() }

func (f *fewColumns) run() {
	kern := f.k
	if f.shape.rounds && f.k.pairs.strips != nil {
		kern = f.k.pairs
	}
	f.columnGroups = kern.columnGroups(f.c.N, f.shape.spreads())
	f.packB()
	tiles := ceil(f.c.M, f.tile)
	f.rows = ceil(tiles, min(tiles, f.shares(4))) * f.tile
	f.spread(ceil(f.c.M, f.rows), f.task)
}

func (fewColumnsWay) need(s *shape) (need Scratch) {
	k := s.e.k
	if s.hasFilters() {
		need.Task.Wide = max(stripBytes/F32.Size(), 4*s.longest)
	}
	if s.N > colsThin || k.strips == nil {
		return need
	}
	cols, widens := 0, false
	for i := range s.Pairs {
		p := &s.Pairs[i]
		cols += padded(s.N)*padded(p.K) + 2*s.limits.spreadLanes
		widens = widens || s.widens(&p.A)
	}
	floats := *s
	floats.rounds = false
	g := k.columnGroups(s.N, floats.spreads())
	need.Call, need.Whole = cols, s.wholeFloats(s.M)
	if widens {
		need.Task.Wide = max(need.Task.Wide, stripBytes/F32.Size()+2*g.tile*s.longest)
	}
	need.Task.Small = g.widest() * g.tile
	need.Task.B = g.widest()*padded(s.longest) + packSlack
	return need
}

// columnGroups is the division of the columns of B among kernel calls, strips or spread.
type columnGroups struct {
	kern    *kernels // kernels of the job, or for pairs
	spreads bool     // by spread
	cols    int
	groups  int // of columns, as even as can be
	tile    int // rows of A for each
}

// columnGroups returns the division of cols columns.
func (k *kernels) columnGroups(cols int, spreads bool) columnGroups {
	if spreads {
		return columnGroups{k, true, cols, ceil(cols, k.spread.cols), k.spread.rows}
	}
	rows := k.strips.rows
	widest := len(rows) - 1
	if cols%widest != 0 {
		if gap := slices.Index(rows[1:], 0); gap > 0 {
			widest = gap
		}
	}
	groups := max(1, ceil(cols, widest))
	return columnGroups{k, false, cols, groups, rows[ceil(cols, groups)]}
}

// group returns the columns of group i. For spread they are whole registers, except in the last group.
func (g *columnGroups) group(i int) (n0, n1 int) {
	if g.spreads {
		lanes := g.kern.limits.spreadLanes
		registers := ceil(g.cols, lanes)
		return i * registers / g.groups * lanes, min(g.cols, (i+1)*registers/g.groups*lanes)
	}
	return i * g.cols / g.groups, (i + 1) * g.cols / g.groups
}

// widest returns the number of columns of the largest group.
func (g *columnGroups) widest() int {
	if g.spreads {
		return min(g.cols, g.kern.spread.cols)
	}
	return ceil(g.cols, g.groups)
}

// floats returns the memory for cols columns and k elements, in whole registers.
func (g *columnGroups) floats(cols, k int) int {
	switch {
	case cols == 0:
		return 0
	case g.spreads:
		return upTo(g.kern.limits.spreadWidth(cols)*k, 2*g.kern.limits.spreadLanes)
	}
	lanes := g.kern.strips.lanes
	return cols * upTo(k, lanes*g.kern.pairSize) / g.kern.pairSize
}

// multiply adds to c the products of a tile of rows of a, lda elements apart, and packed
// columns w.
func (g *columnGroups) multiply(cols, k int, a unsafe.Pointer, lda int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	if g.spreads {
		g.kern.spread.multiply(cols, k, a, lda, w, c, ldc, ahead, alpha)
		return
	}
	g.kern.strips.multiply(cols, k, a, lda, w, c, ldc, ahead, alpha)
}

// packB packs B of every pair.
func (f *fewColumns) packB() {
	c, size := f.c, 0
	f.b, f.packs = f.b[:0], f.packs[:0]
	for i := range c.Pairs {
		if p := &c.Pairs[i]; !p.idle() {
			size += f.floats(c.N, p.K) + packSlack + 1
		}
	}
	free := f.job.memory.alloc(size)
	for i := range c.Pairs {
		n := 0
		if p := &c.Pairs[i]; !p.idle() {
			n = f.floats(c.N, p.K) + packSlack + 1
			f.packs = append(f.packs, i)
		}
		f.b = append(f.b, free[:n])
		free = free[n:]
	}
	f.spread(len(f.packs)*f.groups, f.pack)
}

// packGroup packs a group of columns of B of a pair: the columns side by side,
// a register of each in turn.
func (f *fewColumns) packGroup(i int) {
	x := f.packs[i/f.groups]
	n0, n1 := f.group(i % f.groups)
	p := &f.c.Pairs[x]
	row, col := p.B.steps()
	dst := f.b[x][f.floats(n0, p.K):][:f.floats(n1-n0, p.K)]
	if f.spreads {
		width := f.kern.limits.spreadWidth(n1 - n0)
		f.k.pack(floats(dst, 0), width, at(p.B.Data, n0*col), p.B.Elem, col, row, n1-n0, p.K, 1)
		clear(dst[width*p.K:])
		f.kern.spread.zip(floats(dst, 0), n1-n0, p.K)
		return
	}
	if row == p.B.Elem.Size() && (f.kern.pairSize == 1 || p.B.Elem == F32) { // k is contiguous
		for n := n0; n < n1; n++ {
			f.packColumn(dst, n-n0, n1-n0, at(p.B.Data, n*col), p.B.Elem, p.K)
		}
		return
	}
	s := f.scratch()
	defer f.release(s)
	width := padded(p.K)
	wide := s.b.alloc((n1-n0)*width + packSlack)
	f.k.pack(floats(wide, 0), width, at(p.B.Data, n0*col), p.B.Elem, row, col, p.K, n1-n0, 1)
	for n := range n1 - n0 {
		f.packColumn(dst, n, n1-n0, floats(wide, n*width), F32, p.K)
	}
}

// packColumn packs column col of cols from its k elements at src.
func (f *fewColumns) packColumn(dst []float32, col, cols int, src unsafe.Pointer, elem Elem, k int) {
	if f.kern.pairSize > 1 || f.kern.strips.panel != nil && elem == F32 {
		f.kern.strips.panel(floats(dst, 0), col, cols, src, k, elem)
		return
	}
	lanes := f.kern.strips.lanes
	packLanes(dst[col*lanes:], cols*lanes, lanes, src, elem, k)
}

// packLanes copies k elements from src to dst, lanes of them to each step of dst, and fills
// the last step with zeroes.
func packLanes(dst []float32, step, lanes int, src unsafe.Pointer, elem Elem, k int) {
	for k > 0 {
		to := dst[:lanes]
		n := min(lanes, k)
		switch elem {
		case F32:
			copy(to, unsafe.Slice((*float32)(src), n))
		default:
			portablePack(unsafe.Pointer(unsafe.SliceData(to)), 1, src, elem, 0, elem.Size(), 1, n, 1)
		}
		clear(to[n:])
		if k -= n; k > 0 {
			dst, src = dst[step:], at(src, n*elem.Size())
		}
	}
}

// computeTask computes the rows of task i. The kernel takes whole tiles: the
// last one begins earlier and repeats rows, whose result is dropped.
func (f *fewColumns) computeTask(i int) {
	m0 := i * f.rows
	m1 := min(f.c.M, m0+f.rows)
	f.c.initialize(m0, m1, 0, f.c.N)
	s := f.scratch()
	defer f.release(s)
	for _, x := range f.packs {
		p := &f.c.Pairs[x]
		step := stripRows(p.K, f.tile)
		for m := m0; m < m1; m += step {
			end := min(m1, m+step)
			rows, first := p.A, m
			if p.FilterA != nil || p.A.Elem != F32 {
				first = max(0, min(m, f.c.M-f.tile))
				rows = f.filtered(p, first, end, s)
			} else {
				rows.Data = at(p.A.Data, 4*m*p.A.Stride)
			}
			row := p.A.Elem.Size() * p.A.Stride
			behind := int(uintptr(p.A.Data)-uintptr(rows.Data)) + end*row
			f.addStrip(x, &strip{rows, first, s}, m, end, front{behind, behind + (m1-end)*row})
		}
	}
}

// stripRows returns the number of rows of k elements in a strip, in whole tiles.
func stripRows(k, tile int) int { return max(1, stripBytes/(4*k*tile)) * tile }

// strip holds rows of A, the first of which is row first of C, and scratch memory.
type strip struct {
	Matrix
	first int
	*scratch
}

// filtered returns rows [m0,m1) of A copied to scratch memory, filtered or widened.
func (f *fewColumns) filtered(p *Pair, m0, m1 int, s *scratch) Matrix {
	rows := s.wide.alloc((m1 - m0) * p.K)
	filtered(rows, p.K, p.FilterA, &p.A, m0, m1, 0, p.K)
	return Of(rows, p.K)
}

// addStrip adds a pair to rows [m0,m1) of C, one block of k at a time: the block of a column group stays in the
// first-level cache, while the rows are read from the second-level cache. It also prefetches the next strip.
func (f *fewColumns) addStrip(x int, rows *strip, m0, m1 int, behind front) {
	p := &f.c.Pairs[x]
	stretch := upTo(stretchOf(p.K, stripDeep*f.kern.pairSize), f.kern.strips.lanes*f.kern.pairSize)
	for k0 := 0; k0 < p.K; k0 += stretch {
		for g := range f.groups {
			f.pass(x, rows, g, k0, min(stretch, p.K-k0), m0, m1, &behind)
		}
	}
}

// pass adds k elements from k0 on of a pair to a group of columns of rows [m0,m1) of C. Each
// tile of rows is passed by once for every group; in one of these passes a tile of the rows
// behind is fetched.
func (f *fewColumns) pass(x int, rows *strip, g, k0, k, m0, m1 int, behind *front) {
	c, p := f.c, &f.c.Pairs[x]
	n0, n1 := f.group(g)
	b := floats(f.b[x], f.floats(n0, p.K)+f.floats(n1-n0, k0))
	for m := m0; m < m1; m += f.tile {
		skip := max(0, m+f.tile-c.M)
		from, ahead := 4*((m-skip-rows.first)*rows.Stride+k0), 0
		if (m/f.tile+g)%f.groups == 0 {
			ahead = behind.step(from, 4*f.tile*k)
		}
		if skip > 0 {
			f.last(rows, n1-n0, k, from, b, m-skip, n0, skip, p.Alpha)
			continue
		}
		f.multiply(n1-n0, k, at(rows.Data, from), rows.Stride, b, floats(c.C, m*c.LDC+n0), c.LDC, ahead, p.Alpha)
	}
}

// last computes the last tile of C, which overlaps the tile before: the results of its first skip rows are dropped.
// The tile starts at byte from of the strip.
func (f *fewColumns) last(rows *strip, cols, k, from int, b unsafe.Pointer, m, n0, skip int, alpha float32) {
	out := rows.a.alloc(f.tile * cols)[:f.tile*cols]
	clear(out)
	f.multiply(cols, k, at(rows.Data, from), rows.Stride, b, floats(out, 0), cols, 0, alpha)
	for i := skip; i < f.tile; i++ {
		row := f.c.C[(m+i)*f.c.LDC+n0:][:cols]
		for j := range row {
			row[j] += out[i*cols+j]
		}
	}
}
