package gemm

import "unsafe"

// fewCols computes a call of at most colsThin columns whose A is float32 with
// its k side by side, such as x·Aᵀ of an adapter: a few rows of A are
// multiplied with all columns of B while they are in cache, and of what is
// packed only B, which is small. Each task takes a range of rows.
type fewCols struct {
	*job
	groups int         // of columns, as even as can be
	rows   int         // per task
	b      [][]float32 // op(B) of each pair, group after group as the kernel takes it
	packs  []int       // the pairs that have one
	task   func(i int)
	pack   func(i int)
}

const (
	colsThin  = 64
	blockDeep = 768 // longest run of k between two updates of C: rows of A stay in L1 beside B
)

func (f *fewCols) bind(j *job) {
	f.job = j
	f.task = f.rowRange
	f.pack = f.packGroup
	f.b, f.packs = make([][]float32, 0, usualPairs), make([]int, 0, usualPairs)
}

func (f *fewCols) run() {
	f.groups = ceil(f.c.N, f.k.blockCols)
	f.prepare()
	tiles := ceil(f.c.M, f.k.blockRows)
	f.rows = ceil(tiles, min(tiles, f.shares(4))) * f.k.blockRows
	f.spread(ceil(f.c.M, f.rows), f.task)
}

// group is the range of columns of a group.
func (f *fewCols) group(i int) (n0, n1 int) { return i * f.c.N / f.groups, (i + 1) * f.c.N / f.groups }

// depth is k in whole registers.
func (f *fewCols) depth(k int) int { return ceil(k, f.k.blockLanes) * f.k.blockLanes }

// prepare packs B of every pair.
func (f *fewCols) prepare() {
	c, size := f.c, 0
	f.b, f.packs = f.b[:0], f.packs[:0]
	for i := range c.Pairs {
		if p := &c.Pairs[i]; !p.idle() {
			size += c.N * f.depth(p.K)
		}
	}
	free := f.job.memory.take(size)
	for i := range c.Pairs {
		n := 0
		if p := &c.Pairs[i]; !p.idle() {
			n = c.N * f.depth(p.K)
			f.packs = append(f.packs, i)
		}
		f.b = append(f.b, free[:n])
		free = free[n:]
	}
	f.spread(len(f.packs)*f.groups, f.pack)
}

// packGroup packs a group of columns of B of a pair: the columns side by side,
// a register of each in turn.
func (f *fewCols) packGroup(i int) {
	x := f.packs[i/f.groups]
	n0, n1 := f.group(i % f.groups)
	p, lanes := &f.c.Pairs[x], f.k.blockLanes
	row, col := p.B.steps()
	dst := f.b[x][n0*f.depth(p.K) : n1*f.depth(p.K)]
	if row == p.B.Elem.Size() { // k lies side by side
		for n := n0; n < n1; n++ {
			packLanes(dst[(n-n0)*lanes:], (n1-n0)*lanes, lanes, at(p.B.Data, n*col), p.B.Elem, p.K)
		}
		return
	}
	s := f.scratch()
	defer f.release(s)
	width := padded(p.K)
	wide := s.b.take((n1-n0)*width + packSlack)
	f.k.pack(floats(wide, 0), width, at(p.B.Data, n0*col), p.B.Elem, row, col, p.K, n1-n0, 1)
	for n := range n1 - n0 {
		packLanes(dst[n*lanes:], (n1-n0)*lanes, lanes, floats(wide, n*width), F32, p.K)
	}
}

// packLanes copies k elements from src to dst, so many to each step, and fills
// the last of these with zeroes.
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

// rowRange computes the rows of task i. The kernel takes whole tiles: the
// last one begins earlier and repeats rows, whose result is dropped.
func (f *fewCols) rowRange(i int) {
	m0 := i * f.rows
	m1 := min(f.c.M, m0+f.rows)
	f.c.initialize(m0, m1, 0, f.c.N)
	for m := m0; m < m1; m += f.k.blockRows {
		skip := max(0, m+f.k.blockRows-f.c.M)
		for x := range f.packs {
			f.tile(f.packs[x], m-skip, skip)
		}
	}
}

// tile adds a pair to blockRows rows of C from m, but for the first skip.
func (f *fewCols) tile(x, m, skip int) {
	c, p := f.c, &f.c.Pairs[x]
	stretch := f.depth(stretchOf(p.K, blockDeep))
	for k0 := 0; k0 < p.K; k0 += stretch {
		k := min(stretch, p.K-k0)
		a := at(p.A.Data, 4*(m*p.A.Stride+k0))
		for g := range f.groups {
			n0, n1 := f.group(g)
			b := floats(f.b[x], n0*f.depth(p.K)+k0*(n1-n0))
			if skip == 0 {
				f.k.block(n1-n0, k, a, p.A.Stride, b, floats(c.C, m*c.LDC+n0), c.LDC, p.Alpha)
				continue
			}
			f.last(n1-n0, k, a, p, b, m, n0, skip)
		}
	}
}

// last is a tile of which not all rows count.
func (f *fewCols) last(cols, k int, a unsafe.Pointer, p *Pair, b unsafe.Pointer, m, n0, skip int) {
	rows := f.k.blockRows
	s := f.scratch()
	defer f.release(s)
	out := s.a.take(rows * cols)[:rows*cols]
	clear(out)
	f.k.block(cols, k, a, p.A.Stride, b, floats(out, 0), cols, p.Alpha)
	for i := skip; i < rows; i++ {
		row := f.c.C[(m+i)*f.c.LDC+n0:][:cols]
		for j := range row {
			row[j] += out[i*cols+j]
		}
	}
}
