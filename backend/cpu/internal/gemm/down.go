package gemm

import "unsafe"

// down is an adapter's multiplication h = x·Aᵀ that is computed while the rows of x are packed for x·Wᵀ, so that x is
// read from memory once for both.
type down struct {
	c         *Call
	pairIndex int       // the pair of the other call that begins with the same matrix
	b         []float32 // op(B) in panels, consecutive blocks of k
}

// downDeep is the number of elements along k in a block of a down: whole runs.
const downDeep = filterDeep

// Carries reports whether RunAfter can compute these, and pays. The first of calls must pack
// for tiles the matrices that downs read. Each down must have one pair, whose A may have a
// filter, as many columns as pay, and nothing to be added to.
func (e *Engine) Carries(downs, calls []*Call) bool {
	if len(downs) == 0 || len(calls) == 0 {
		return false
	}
	j := e.job(calls[0])
	defer e.release(j)
	j.choose()
	return j.shape.carries(downs)
}

// RunAfter computes downs, h = x·Aᵀ of adapters, and then calls, x·Wᵀ + h·Bᵀ, reading x once. Results equal RunAll
// for downs and then for calls, up to rounding; they do not depend on the number of workers. It panics if Carries is
// false.
func (e *Engine) RunAfter(downs, calls []*Call) {
	for _, d := range downs {
		d.check()
	}
	j := e.job(calls[0])
	j.choose()
	if !j.shape.carries(downs) {
		panic("gemm: products that are not computed while another one packs what they read: ask Carries first")
	}
	p := &j.panels
	for _, d := range downs {
		p.downs = append(p.downs, down{c: d, pairIndex: j.c.pairSharingA(d)})
	}
	j.next(calls[0])
	clear(p.downs)
	p.downs = p.downs[:0]
	for _, c := range calls[1:] {
		j.next(c)
	}
	e.release(j)
}

// carries reports whether a call can carry downs: it packs panels for tiles, has a pair with
// the x of each down, and reads their h row by row, if at all.
func (s *shape) carries(downs []*Call) bool {
	if s.mode.invariant || s.invariant || !s.limits.tiles || s.panels() == inFloats || s.route().way != (panelsWay{}) {
		return false
	}
	for _, d := range downs {
		if d.Invariant || !downPays(d, s.rounds) || len(d.C) == 0 || s.pairSharingA(d) < 0 {
			return false
		}
		for i := range s.Pairs {
			if p := &s.Pairs[i]; d.computes(p) && (p.A.Trans || p.A.Elem != F32 || p.A.Data != floats(d.C, 0) || p.A.Stride != d.LDC) {
				return false
			}
		}
	}
	return true
}

// downPays reports whether a down has enough columns for tiles to be worth it, and no more
// than an adapter has.
func downPays(d *Call, rounds bool) bool {
	least := tilesColsPieces
	if rounds {
		least = downPairs
	}
	return d.N >= least && d.N <= colsThin
}

// computes reports whether the call computes A of the pair.
func (c *Call) computes(p *Pair) bool {
	off := uintptr(p.A.Data) - uintptr(floats(c.C, 0))
	return off < uintptr(F32.Size()*len(c.C))
}

// pairSharingA returns the index of the pair of c whose A is the x of d, or -1 if there is none or d cannot be carried.
func (c *Call) pairSharingA(d *Call) int {
	if len(d.Pairs) != 1 || d.M != c.M || d.Accumulate || d.Bias != nil || d.Filter != nil {
		return -1
	}
	low := &d.Pairs[0]
	if low.idle() || low.B.Elem.Quantized() || low.FilterB != nil || low.FilterA != nil && (low.A.Elem != F32 || low.A.Trans) {
		return -1
	}
	for i := range c.Pairs {
		if p := &c.Pairs[i]; p.A == low.A && p.K == low.K && p.Alpha == 1 && p.FilterA == nil {
			return i
		}
	}
	return -1
}

func (d *down) pair() *Pair    { return &d.c.Pairs[0] }
func (d *down) stretches() int { return ceil(d.pair().K, downDeep) }

// floats returns the memory for the packed B of a down.
func (d *down) floats(k *kernels) int {
	p := d.pair()
	return ceil(d.c.N, k.nr)*k.nr*k.columnFloats(p, k.words(p.K)) + packSlack
}

// block returns block i of B: its panels, the floats per column, and its range of elements [first,last) along k.
func (d *down) block(k *kernels, i int) (b []float32, column, first, last int) {
	p := d.pair()
	first = i * downDeep
	last = min(p.K, first+downDeep)
	column = k.columnFloats(p, k.words(last-first))
	return d.b[ceil(d.c.N, k.nr)*k.nr*k.columnFloats(p, k.words(first)):], column, first, last
}

// packDowns packs B of all downs.
func (p *panels) packDowns() {
	if len(p.downs) == 0 {
		return
	}
	floats, tasks := 0, 0
	for i := range p.downs {
		floats += p.downs[i].floats(p.kern)
		tasks += p.downs[i].stretches()
	}
	b := p.downB.alloc(floats)
	for i := range p.downs {
		d := &p.downs[i]
		d.b, b = b, b[d.floats(p.kern):]
	}
	p.wild.Store(true) // A may be anything
	p.spread(tasks, p.downTask)
}

// packDown packs one block of a down.
func (p *panels) packDown(i int) {
	d := 0
	for ; i >= p.downs[d].stretches(); d++ {
		i -= p.downs[d].stretches()
	}
	to := &p.downs[d]
	b, column, first, last := to.block(p.kern, i)
	p.packB(b, to.pair(), &to.pair().B, column, first, last, 0, to.c.N)
}

// isDown reports whether A of a pair is the h of a down.
func (p *panels) isDown(pair *Pair) bool {
	for i := range p.downs {
		if p.downs[i].c.computes(pair) {
			return true
		}
	}
	return false
}

// down computes the rows [r0,r1) of h, for which the panel of x is packed.
func (p *panels) down(d *down, panel []float32, r0, r1 int) {
	pair, rows := d.pair(), r1-r0
	for i := range d.stretches() {
		b, column, first, last := d.block(p.kern, i)
		a := floats(panel, p.kern.panelFloats(p.starts[d.pairIndex]+first/p.kern.pairSize)*rows)
		if pair.FilterA == nil {
			p.downTiles(d, a, b, column, first, last, r0, r1)
			continue
		}
		s := p.scratch()
		wide, to := s.wide.alloc(rows*downDeep), floats(s.b.alloc(p.kern.downPanel()), 0)
		filtered(wide, downDeep, pair.FilterA, &pair.A, p.row0+r0, p.row0+r1, first, last)
		m, whole := Of(wide, downDeep), Pair{Alpha: 1}
		p.packPanel(to, rows, &whole, &m, m.Data, last-first)
		p.downTiles(d, to, b, column, first, last, r0, r1)
		p.release(s)
	}
	if pair.Alpha != 1 {
		for i := p.row0 + r0; i < p.row0+r1; i++ {
			row := d.c.C[i*d.c.LDC:][:d.c.N]
			for j := range row {
				row[j] *= pair.Alpha
			}
		}
	}
}

// downPanel returns the memory of one block of a panel of A.
func (k *kernels) downPanel() int { return k.mr*k.panelFloats(downDeep/k.pairSize) + packSlack }

// downTiles adds the elements [first,last) of the k axis to the rows [r0,r1) of a down.
func (p *panels) downTiles(d *down, a unsafe.Pointer, b []float32, column, first, last, r0, r1 int) {
	c, words, nr := d.c, p.kern.words(last-first), p.kern.nr
	whole, apart := words, 0
	if p.kern.splitsB(d.pair()) {
		whole, apart = 0, words
	}
	for n := 0; n < c.N; n += nr {
		from, to, cols := floats(b, n*column), floats(c.C, (p.row0+r0)*c.LDC+n), min(nr, c.N-n)
		if p.kern.pieces != nil {
			p.kern.pieces.tile(r1-r0, whole, apart, a, from, to, c.LDC, cols, first > 0, nil, 0)
		} else {
			p.kern.tile(r1-r0, words, a, from, to, c.LDC, cols, first > 0, nil, 0)
		}
	}
}
