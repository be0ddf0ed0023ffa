package gemm

// longKWay is for the gradient of an adapter's A, dhᵀ·x: few rows, A transposed, and k the
// number of tokens. Each row of x is read from front to back while the sums stay in cache.
type longKWay struct{}

// longK is a call on that way. The k axis is split into parts, which are summed separately and added up in order; the
// split depends on k only. Each task computes a range of columns of one part. Most of the time would be spent waiting
// for B, so the next rows are prefetched while others are multiplied.
type longK struct {
	*job
	parts  []part
	cols   int // per task
	ranges int // of columns
	sums   []float32
	pack   func(i int)
	task   func(i int)
	add    func(i int)
}

// part is a section of the k axis of one pair.
type part struct {
	pair, k0, k int
	kern        *kernels  // whose outer multiplies it, or nil
	a           outerA    // for that
	words       []float32 // where these are packed, if they are
}

const (
	longKPart    = 512
	longKParts   = 4         // of a pair at most
	longKCols    = 512       // columns of a task at least, for rows of B to be read in long runs
	longKStretch = 64        // rows of a float32 B that are multiplied at a time by outer
	longKBytes   = 256 << 10 // bytes of B that are multiplied at a time, while the next are prefetched
)

// partsOf returns the number of parts for k elements.
func partsOf(k int) int { return min(longKParts, max(1, k/longKPart)) }

func (longKWay) run(j *job) { j.longK.run() }

func (longKWay) need(s *shape) (need Scratch) {
	if s.hasFilters() {
		need.Task.Wide = longKBytes / F32.Size()
	}
	if !s.transA {
		return need
	}
	parts, words, rows := 0, 0, min(s.M, rowsOuter)
	for i := range s.Pairs {
		if s.widens(&s.Pairs[i].B) {
			need.Task.Wide = longKBytes / BF16.Size() // as many elements as of bfloat16
		}
		k := s.Pairs[i].K
		parts += partsOf(k)
		if kern := s.e.k.outerOf(s); kern.outer != nil {
			words += partsOf(k) * kern.outerFloats(rows, ceil(k, partsOf(k)))
		}
	}
	need.Call, need.Whole = words+(parts-1)*rows*s.N, s.wholeFloats(rows)
	return need
}

func (f *longK) bind(j *job) {
	f.job = j
	f.pack, f.task, f.add = f.packPart, f.multiply, f.addUp
	f.parts = make([]part, 0, usualPairs)
}

func (f *longK) run() {
	c := f.c
	f.parts = f.parts[:0]
	words := 0
	for x := range c.Pairs {
		p := &c.Pairs[x]
		if p.idle() {
			continue
		}
		n, kern := partsOf(p.K), f.outers(p)
		for i := range n {
			k0, k1 := i*p.K/n, (i+1)*p.K/n
			f.parts = append(f.parts, part{pair: x, k0: k0, k: k1 - k0, kern: kern})
			if kern != nil {
				words += kern.outerFloats(c.M, k1-k0)
			}
		}
	}
	sums := (len(f.parts) - 1) * c.M * c.N
	memory := f.job.memory.alloc(sums + words)
	f.sums = memory[:sums]
	f.divide(memory[sums:])
	if words > 0 {
		f.spread(len(f.parts), f.pack)
	} else {
		for i := range f.parts {
			f.packPart(i)
		}
	}
	groups := ceil(c.N, longKCols)
	ranges := max(min(ceil(f.shares(4), len(f.parts)), groups), ceil(groups, 2))
	f.cols = ceil(groups, ranges) * longKCols
	f.ranges = ceil(c.N, f.cols)
	f.spread(len(f.parts)*f.ranges, f.task)
	f.spread(f.ranges, f.add)
}

// divide distributes memory to the parts whose A is packed.
func (f *longK) divide(memory []float32) {
	for i := range f.parts {
		if x := &f.parts[i]; x.kern != nil {
			n := x.kern.outerFloats(f.c.M, x.k)
			x.words, memory = memory[:n], memory[n:]
		}
	}
}

// packPart prepares A of part i in the format of outer, packed if necessary.
func (f *longK) packPart(i int) {
	if x := &f.parts[i]; x.kern != nil {
		x.a = x.kern.outerAOf(x.words, &f.c.Pairs[x.pair].A, f.c.M, x.k0, x.k)
	}
}

// multiply computes a range of columns of a part.
func (f *longK) multiply(i int) {
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
	x := &f.parts[i]
	p := &c.Pairs[x.pair]
	if p.FilterB == nil && !f.shape.widens(&p.B) {
		f.multiplyPart(x, p, 0, x.k0, x.k, n0, n1, sum, stride, nextRows{})
		return
	}
	s := f.scratch()
	defer f.release(s)
	step, width := f.rowsPerBlock(x, p), n1-n0
	wide := s.wide.alloc(step * width)
	part := Pair{A: p.A, B: Of(wide, width), Alpha: p.Alpha}
	for t := 0; t < x.k; t += step {
		k := min(step, x.k-t)
		filtered(wide, width, p.FilterB, &p.B, x.k0+t, x.k0+t+k, n0, n1)
		var after nextRows
		if t+k < x.k {
			after = nextRows{at(p.B.Data, p.B.Elem.Size()*((x.k0+t+k)*p.B.Stride+n0)), p.B.Stride}
		}
		f.multiplyPart(x, &part, t, 0, k, 0, width, sum[n0:], stride, after)
	}
}

// multiplyPart adds k elements from t on of op(A) of a part, times rows [k0,k0+k) of B of p, to the columns [n0,n1)
// of sum, with row stride ld.
func (f *longK) multiplyPart(x *part, p *Pair, t, k0, k, n0, n1 int, sum []float32, ld int, after nextRows) {
	stretch := f.rowsPerBlock(x, p)
	if x.kern != nil {
		a := outerA{at(x.a.data, t/x.kern.pairSize*x.a.step), x.a.step}
		f.outerWalk(x.kern, p, a, k0, k, stretch, n0, n1, sum, ld, after)
		return
	}
	row, col := p.A.steps()
	f.walk(p, operand{at(p.A.Data, (x.k0+t-k0)*col), row, col}, k0, k, stretch, n0, n1, sum, ld)
}

// rowsPerBlock returns the number of rows of B that are multiplied at a time.
func (f *longK) rowsPerBlock(x *part, p *Pair) int {
	if x.kern != nil {
		_, cols := x.kern.outerShape(f.c.M)
		return min(longKStretch, 2*longKCols/cols) // a call prefetches half a row at most
	}
	return max(32, longKBytes/(min(f.c.N, 2*longKCols)*p.B.Elem.Size())&^7) // one for all divisions into columns
}

// sum returns the sums of part i > 0.
func (f *longK) sum(i int) []float32 { return f.sums[(i-1)*f.c.M*f.c.N:][:f.c.M*f.c.N] }

// addUp adds the parts of a range of columns to C.
func (f *longK) addUp(i int) {
	c := f.c
	n0 := i * f.cols
	n1 := min(c.N, n0+f.cols)
	for m := range c.M {
		row := c.C[m*c.LDC+n0 : m*c.LDC+n1]
		for i := 1; i < len(f.parts); i++ {
			for j, v := range f.sum(i)[m*c.N+n0:][:len(row)] {
				row[j] += v
			}
		}
	}
}
