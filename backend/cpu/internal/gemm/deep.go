package gemm

// deep computes a call of a few rows whose operands A are transposed and whose
// k is long, such as the gradient of an adapter's A, dhᵀ·x: each row of B, a
// token's, is read from front to back, while the sums stay in cache. The k axis
// is cut into pieces which are summed apart and added up in their order; where
// it is cut depends on k alone. Each task takes a range of columns of a piece.
// Most of the time goes into waiting for B, unless it is fetched while other
// parts of it are multiplied.
type deep struct {
	*job
	pieces []piece
	cols   int // per task
	ranges int // of columns
	sums   []float32
	pack   func(i int)
	task   func(i int)
	add    func(i int)
}

// piece is a run of k of a pair.
type piece struct {
	pair, k0, k int
	kern        *kernels  // whose outer multiplies it, or nil
	a           columns   // for that
	words       []float32 // where these are packed, if they are
}

const (
	deepLeast   = 256 // elements of k, of one pair at least
	deepPiece   = 512
	deepPieces  = 4         // of a pair at most
	deepCols    = 512       // columns of a task at least, for rows of B to be read in long runs
	deepStretch = 64        // rows of a float32 B that are multiplied at a time by outer
	deepBytes   = 256 << 10 // of B that are multiplied at a time, and fetched meanwhile
)

// deepens reports whether a call is one for deep.
func (c *Call) deepens() bool {
	if c.M > rowsInPlace || c.N < 2*colsFew {
		return false
	}
	long := false
	for i := range c.Pairs {
		p := &c.Pairs[i]
		if p.idle() {
			continue
		}
		if p.A.Elem != F32 || !p.A.Trans || p.B.Trans || p.B.Elem.Quantized() {
			return false
		}
		long = long || p.K >= deepLeast
	}
	return long
}

// deepParts is into how many pieces k elements are cut.
func deepParts(k int) int { return min(deepPieces, max(1, k/deepPiece)) }

func (f *deep) bind(j *job) {
	f.job = j
	f.pack, f.task, f.add = f.packPiece, f.multiply, f.addUp
	f.pieces = make([]piece, 0, usualPairs)
}

func (f *deep) run() {
	c := f.c
	f.pieces = f.pieces[:0]
	words := 0
	for x := range c.Pairs {
		p := &c.Pairs[x]
		if p.idle() {
			continue
		}
		n, kern := deepParts(p.K), f.outers(p)
		for i := range n {
			k0, k1 := i*p.K/n, (i+1)*p.K/n
			f.pieces = append(f.pieces, piece{pair: x, k0: k0, k: k1 - k0, kern: kern})
			if kern != nil {
				words += kern.outerFloats(c.M, k1-k0)
			}
		}
	}
	sums := (len(f.pieces) - 1) * c.M * c.N
	memory := f.job.memory.take(sums + words)
	f.sums = memory[:sums]
	f.divide(memory[sums:])
	if words > 0 {
		f.spread(len(f.pieces), f.pack)
	} else {
		for i := range f.pieces {
			f.packPiece(i)
		}
	}
	groups := ceil(c.N, deepCols)
	ranges := max(min(ceil(f.shares(4), len(f.pieces)), groups), ceil(groups, 2))
	f.cols = ceil(groups, ranges) * deepCols
	f.ranges = ceil(c.N, f.cols)
	f.spread(len(f.pieces)*f.ranges, f.task)
	f.spread(f.ranges, f.add)
}

// divide gives each piece whose A is packed a part of memory for it.
func (f *deep) divide(memory []float32) {
	for i := range f.pieces {
		if x := &f.pieces[i]; x.kern != nil {
			n := x.kern.outerFloats(f.c.M, x.k)
			x.words, memory = memory[:n], memory[n:]
		}
	}
}

// packPiece gets A of piece i ready for outer.
func (f *deep) packPiece(i int) {
	if x := &f.pieces[i]; x.kern != nil {
		x.a = x.kern.columnsOf(x.words, &f.c.Pairs[x.pair].A, f.c.M, x.k0, x.k)
	}
}

// multiply computes a range of columns of a piece.
func (f *deep) multiply(i int) {
	c := f.c
	n0 := i % f.ranges * f.cols
	n1 := min(c.N, n0+f.cols)
	i /= f.ranges
	sum, stride := c.C, c.LDC
	if i == 0 {
		c.initialize(0, c.M, n0, n1)
	} else {
		sum, stride = f.sum(i), c.N
		for m := range c.M {
			clear(sum[m*stride+n0 : m*stride+n1])
		}
	}
	x := &f.pieces[i]
	p := &c.Pairs[x.pair]
	if p.FilterB == nil && !f.e.widens(&p.B) {
		f.multiplyPart(x, p, 0, x.k0, x.k, n0, n1, sum, stride, ahead{})
		return
	}
	s := f.scratch()
	defer f.release(s)
	step, width := f.stretch(x, p), n1-n0
	wide := s.wide.take(step * width)
	part := Pair{A: p.A, B: Of(wide, width), Alpha: p.Alpha}
	for t := 0; t < x.k; t += step {
		k := min(step, x.k-t)
		filtered(wide, width, p.FilterB, &p.B, x.k0+t, x.k0+t+k, n0, n1)
		var after ahead
		if t+k < x.k {
			after = ahead{at(p.B.Data, p.B.Elem.Size()*((x.k0+t+k)*p.B.Stride+n0)), p.B.Stride}
		}
		f.multiplyPart(x, &part, t, 0, k, 0, width, sum[n0:], stride, after)
	}
}

// multiplyPart adds k elements from t on of op(A) of a piece, times rows
// [k0,k0+k) of B of p, to the columns [n0,n1) of sum, rows of which are ld apart.
func (f *deep) multiplyPart(x *piece, p *Pair, t, k0, k, n0, n1 int, sum []float32, ld int, after ahead) {
	stretch := f.stretch(x, p)
	if x.kern != nil {
		a := columns{at(x.a.data, t/x.kern.pairSize*x.a.step), x.a.step}
		f.outerWalk(x.kern, p, a, k0, k, stretch, n0, n1, sum, ld, after)
		return
	}
	row, col := p.A.steps()
	f.walk(p, operand{at(p.A.Data, (x.k0+t-k0)*col), row, col}, k0, k, stretch, n0, n1, sum, ld)
}

// stretch is how many rows of B are multiplied before others are.
func (f *deep) stretch(x *piece, p *Pair) int {
	if x.kern != nil {
		_, cols := x.kern.outerShape(f.c.M)
		return min(deepStretch, 2*deepCols/cols) // of which a call fetches half a row at most
	}
	return max(32, deepBytes/(min(f.c.N, 2*deepCols)*p.B.Elem.Size())&^7) // one for all divisions into columns
}

// sum is where piece i > 0 is summed.
func (f *deep) sum(i int) []float32 { return f.sums[(i-1)*f.c.M*f.c.N:][:f.c.M*f.c.N] }

// addUp adds the pieces of a range of columns to C.
func (f *deep) addUp(i int) {
	c := f.c
	n0 := i * f.cols
	n1 := min(c.N, n0+f.cols)
	for m := range c.M {
		row := c.C[m*c.LDC+n0 : m*c.LDC+n1]
		for i := 1; i < len(f.pieces); i++ {
			for j, v := range f.sum(i)[m*c.N+n0:][:len(row)] {
				row[j] += v
			}
		}
	}
}
