package gemm

// fewCols computes a call of at most colsThin columns whose A is float32 with
// its k side by side, such as x·Aᵀ of an adapter: a few rows of A are
// multiplied with all columns of B while they are in cache, and nothing large
// is packed. Each task takes a range of rows.
type fewCols struct {
	*job
	rows int       // per task
	b    []operand // op(B)ᵀ of each pair, [N][K]
	task func(i int)

	memory buffer // for B of the pairs that cannot be read in place
}

const (
	colsThin  = 64
	blockDeep = 768 // longest run of k between two updates of C: rows of A stay in L1
)

func (f *fewCols) bind(j *job) {
	f.job = j
	f.task = f.rowRange
}

func (f *fewCols) run() {
	f.prepare()
	tiles := ceil(f.c.M, f.k.blockRows)
	f.rows = ceil(tiles, min(tiles, f.shares(4))) * f.k.blockRows
	f.spread(ceil(f.c.M, f.rows), f.task)
}

// prepare finds B of every pair, and widens or transposes what the kernel
// cannot take as it is.
func (f *fewCols) prepare() {
	c, size := f.c, 0
	inPlace := func(p *Pair) bool { return p.B.Elem == F32 && p.B.Trans }
	for i := range c.Pairs {
		if p := &c.Pairs[i]; !p.idle() && !inPlace(p) {
			size += c.N*padded(p.K) + packSlack
		}
	}
	free := f.memory.take(size)
	f.b = f.b[:0]
	for i := range c.Pairs {
		p := &c.Pairs[i]
		row, col := p.B.steps()
		o := operand{data: p.B.Data, row: col, col: row}
		if !p.idle() && !inPlace(p) {
			o = operand{floats(free, 0), 4 * padded(p.K), F32.Size()}
			f.k.pack(o.data, padded(p.K), p.B.Data, p.B.Elem, row, col, p.K, c.N, 1)
			free = free[c.N*padded(p.K)+packSlack:]
		}
		f.b = append(f.b, o)
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
	out := s.a.take(f.k.blockRows * f.k.blockCols)
	for m := m0; m < m1; m += f.k.blockRows {
		skip := max(0, m+f.k.blockRows-f.c.M)
		for x := range f.c.Pairs {
			if p := &f.c.Pairs[x]; !p.idle() {
				f.tile(p, f.b[x], m-skip, skip, out)
			}
		}
	}
}

// tile adds a pair to blockRows rows of C from m, but for the first skip.
func (f *fewCols) tile(p *Pair, b operand, m, skip int, out []float32) {
	c, rows := f.c, f.k.blockRows
	stretch := stretchOf(p.K, blockDeep)
	for k0 := 0; k0 < p.K; k0 += stretch {
		k := min(stretch, p.K-k0)
		a := at(p.A.Data, 4*(m*p.A.Stride+k0))
		for n := 0; n < c.N; n += f.k.blockCols {
			cols := min(f.k.blockCols, c.N-n)
			f.k.block(cols, k, a, p.A.Stride, at(b.data, n*b.row+4*k0), b.row/4, floats(out, 0))
			for i := skip; i < rows; i++ {
				row := c.C[(m+i)*c.LDC+n:][:cols]
				for j := range row {
					row[j] += p.Alpha * out[j*rows+i]
				}
			}
		}
	}
}
