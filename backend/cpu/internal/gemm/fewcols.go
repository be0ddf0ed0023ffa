package gemm

import (
	"slices"
	"unsafe"
)

// fewCols computes a call of at most colsThin columns whose A is float32, or
// widened to that, with its k side by side, such as x·Aᵀ of an adapter: a strip of rows of A is
// multiplied with all columns of B while it is in cache, and of what is
// packed only B, which is small. Each task takes a range of rows.
type fewCols struct {
	*job
	blocks
	rows  int         // per task
	b     [][]float32 // op(B) of each pair, group after group as the kernel takes it
	packs []int       // the pairs that have one
	task  func(i int)
	pack  func(i int)
}

const (
	colsThin   = 64
	colsTile   = 16        // columns from which on tiles of bfloat16 are faster than block
	blockDeep  = 512       // longest run of k in words between two updates of C: B of a group stays in the nearest cache
	blockStrip = 192 << 10 // bytes of a strip, which stays in the second-level cache beside the next one
)

func (f *fewCols) bind(j *job) {
	f.job = j
	f.task = f.rowRange
	f.pack = f.packGroup
	f.b, f.packs = make([][]float32, 0, usualPairs), make([]int, 0, usualPairs)
}

func (f *fewCols) run() {
	f.blocks = f.k.blocks(f.c.N)
	if f.e.Rounds() && f.k.pairs.block != nil {
		f.blocks = f.k.pairs.blocks(f.c.N)
	}
	f.prepare()
	tiles := ceil(f.c.M, f.tile)
	f.rows = ceil(tiles, min(tiles, f.shares(4))) * f.tile
	f.spread(ceil(f.c.M, f.rows), f.task)
}

// blockMost is how many columns a call has at most that goes this way; rounds says
// that operands may be rounded.
func (k *kernels) blockMost(rounds bool) int {
	switch {
	case k.block == nil:
		return 0
	case rounds && k.pairs.inTiles():
		return colsTile
	}
	return colsThin
}

// blocks is how so many columns are divided for block, or for fan.
type blocks struct {
	kern   *kernels // those of the job, or those for pairs
	fans   bool     // by fan
	cols   int
	groups int // of columns, as even as can be
	tile   int // rows of A for each
}

// blocks divides so many columns.
func (k *kernels) blocks(cols int) blocks {
	if k.fan != nil && cols*4 >= k.fanWidth(cols)*k.fanQuarters {
		return blocks{k, true, cols, ceil(cols, k.fanCols), k.fanRows}
	}
	widest := len(k.blockRows) - 1
	if cols%widest != 0 {
		if gap := slices.Index(k.blockRows[1:], 0); gap > 0 {
			widest = gap
		}
	}
	groups := max(1, ceil(cols, widest))
	return blocks{k, false, cols, groups, k.blockRows[ceil(cols, groups)]}
}

// group is the range of columns of a group: for fan whole registers of them, but for
// the last.
func (b *blocks) group(i int) (n0, n1 int) {
	if b.fans {
		lanes := b.kern.fanLanes
		registers := ceil(b.cols, lanes)
		return i * registers / b.groups * lanes, min(b.cols, (i+1)*registers/b.groups*lanes)
	}
	return i * b.cols / b.groups, (i + 1) * b.cols / b.groups
}

// widest is the number of columns of the group that has most.
func (b *blocks) widest() int {
	if b.fans {
		return min(b.cols, b.kern.fanCols)
	}
	return ceil(b.cols, b.groups)
}

// floats is what so many columns of a group take for k elements, in whole registers.
func (b *blocks) floats(cols, k int) int {
	switch {
	case cols == 0:
		return 0
	case b.fans:
		return upTo(b.kern.fanWidth(cols)*k, 2*b.kern.fanLanes)
	}
	lanes := b.kern.blockLanes
	return cols * upTo(k, lanes*b.kern.pairSize) / b.kern.pairSize
}

// fanWidth is how many columns lie side by side for fan, of so many.
func (k *kernels) fanWidth(cols int) int {
	if half := k.fanLanes / 2; cols <= half {
		return half
	}
	return upTo(cols, k.fanLanes)
}

// multiply adds to c the products of a tile of rows, lda elements apart, and so many
// columns of w, as these are packed.
func (b *blocks) multiply(cols, k int, a unsafe.Pointer, lda int, w, c unsafe.Pointer, ldc, ahead int, alpha float32) {
	if b.fans {
		b.kern.fan(cols, k, a, lda, w, c, ldc, ahead, alpha)
		return
	}
	b.kern.block(cols, k, a, lda, w, c, ldc, ahead, alpha)
}

// prepare packs B of every pair.
func (f *fewCols) prepare() {
	c, size := f.c, 0
	f.b, f.packs = f.b[:0], f.packs[:0]
	for i := range c.Pairs {
		if p := &c.Pairs[i]; !p.idle() {
			size += f.floats(c.N, p.K) + packSlack + 1
		}
	}
	free := f.job.memory.take(size)
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
func (f *fewCols) packGroup(i int) {
	x := f.packs[i/f.groups]
	n0, n1 := f.group(i % f.groups)
	p := &f.c.Pairs[x]
	row, col := p.B.steps()
	dst := f.b[x][f.floats(n0, p.K):][:f.floats(n1-n0, p.K)]
	if f.fans {
		width := f.kern.fanWidth(n1 - n0)
		f.k.pack(floats(dst, 0), width, at(p.B.Data, n0*col), p.B.Elem, col, row, n1-n0, p.K, 1)
		clear(dst[width*p.K:])
		f.kern.fanZip(floats(dst, 0), n1-n0, p.K)
		return
	}
	if row == p.B.Elem.Size() && (f.kern.pairSize == 1 || p.B.Elem == F32) { // k lies side by side
		for n := n0; n < n1; n++ {
			f.packColumn(dst, n-n0, n1-n0, at(p.B.Data, n*col), p.B.Elem, p.K)
		}
		return
	}
	s := f.scratch()
	defer f.release(s)
	width := padded(p.K)
	wide := s.b.take((n1-n0)*width + packSlack)
	f.k.pack(floats(wide, 0), width, at(p.B.Data, n0*col), p.B.Elem, row, col, p.K, n1-n0, 1)
	for n := range n1 - n0 {
		f.packColumn(dst, n, n1-n0, floats(wide, n*width), F32, p.K)
	}
}

// packColumn packs a column of so many from where its k elements lie.
func (f *fewCols) packColumn(dst []float32, col, cols int, src unsafe.Pointer, elem Elem, k int) {
	if f.kern.pairSize > 1 || f.kern.panel != nil && elem == F32 {
		f.kern.panel(floats(dst, 0), col, cols, src, k, elem)
		return
	}
	lanes := f.kern.blockLanes
	packLanes(dst[col*lanes:], cols*lanes, lanes, src, elem, k)
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

// stripRows is how many rows of k elements a strip has, in whole tiles.
func stripRows(k, tile int) int { return max(1, blockStrip/(4*k*tile)) * tile }

// strip is rows of A, the first of which is row first of C, and scratch memory.
type strip struct {
	Matrix
	first int
	*scratch
}

// filtered is rows [m0,m1) of an A with a filter, after it, or of one that is widened.
func (f *fewCols) filtered(p *Pair, m0, m1 int, s *scratch) Matrix {
	rows := s.wide.take((m1 - m0) * p.K)
	filtered(rows, p.K, p.FilterA, &p.A, m0, m1, 0, p.K)
	return Of(rows, p.K)
}

// addStrip adds a pair to rows [m0,m1) of C, a stretch of k after the other:
// what a group of columns has of it stays in the nearest cache, while the rows
// come from the second one. Meanwhile it fetches what comes next.
func (f *fewCols) addStrip(x int, rows *strip, m0, m1 int, behind front) {
	p := &f.c.Pairs[x]
	stretch := upTo(stretchOf(p.K, blockDeep*f.kern.pairSize), f.kern.blockLanes*f.kern.pairSize)
	for k0 := 0; k0 < p.K; k0 += stretch {
		for g := range f.groups {
			f.pass(x, rows, g, k0, min(stretch, p.K-k0), m0, m1, &behind)
		}
	}
}

// pass adds k elements from k0 on of a pair to a group of columns of rows
// [m0,m1) of C. In one of the passes of a tile, a tile of what is behind is
// fetched.
func (f *fewCols) pass(x int, rows *strip, g, k0, k, m0, m1 int, behind *front) {
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

// last is a tile of which not all rows count, at so many bytes of a strip.
func (f *fewCols) last(rows *strip, cols, k, from int, b unsafe.Pointer, m, n0, skip int, alpha float32) {
	out := rows.a.take(f.tile * cols)[:f.tile*cols]
	clear(out)
	f.multiply(cols, k, at(rows.Data, from), rows.Stride, b, floats(out, 0), cols, 0, alpha)
	for i := skip; i < f.tile; i++ {
		row := f.c.C[(m+i)*f.c.LDC+n0:][:cols]
		for j := range row {
			row[j] += out[i*cols+j]
		}
	}
}
