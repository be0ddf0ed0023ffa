package gemm

// Prepacked is op(B) of a product as the tile kernel reads it: made once, it
// saves every later product the packing. It serves the engine that made it.
type Prepacked struct {
	data []float32
	kern *kernels
	step int // floats of a column
}

// PrepackedFloats returns the number of floats that Prepack needs for op(B) [k,n] with elements of type elem.
func (e *Engine) PrepackedFloats(elem Elem, k, n int) int {
	p := e.packing(elem, k)
	return ceil(n, p.kern.nr)*p.kern.nr*p.column(p.depth) + packSlack
}

// Prepack packs op(B) [k,n] into dst, of PrepackedFloats elements, which the
// result keeps. A product with it has the bits that it has without.
func (e *Engine) Prepack(dst []float32, b Matrix, k, n int) *Prepacked {
	p := e.packing(b.Elem, k)
	p.c.Pairs[0].B = b
	step := p.column(p.depth)
	out := &Prepacked{data: dst, kern: p.kern, step: step}
	e.pool.Run(ceil(n, p.kern.nr), func(i int) {
		s := e.borrow()
		defer e.giveBack(s)
		n0 := i * p.kern.nr
		// packCols may write up to packSlack elements past the panel, which in dst would overwrite the next one. Pack
		// into scratch and copy.
		panel := s.b.alloc(p.kern.nr*step + packSlack)
		p.packCols(s, panel, 0, p.depth, n0, min(n, n0+p.kern.nr))
		copy(dst[n0*step:], panel[:p.kern.nr*step])
	})
	return out
}

// packing returns the layout in which this engine packs k elements along k of B into panels.
func (e *Engine) packing(elem Elem, k int) *panels {
	c := &Call{Pairs: []Pair{{B: Matrix{Elem: elem}, K: k, Alpha: 1}}}
	s := e.shapeOf(c)
	p := &panels{job: &job{e: e, k: e.k, c: c}, kern: e.k.forFamily(s.manyRows())}
	p.layOut()
	return p
}

// matches reports whether B as Prepack made it is what this call would pack. It is not where A
// has something that is not finite, or for other kernels.
func (p *panels) matches(r *Prepacked) bool { return r != nil && r.kern == p.kern && !p.wild.Load() }

// ready returns k words from k0 of columns from n0 if they are packed already, with the floats per column of these
// panels; otherwise nil.
func (p *panels) ready(k0, k, n0 int) (b []float32, step int) {
	for x := range p.c.Pairs {
		pair, start := &p.c.Pairs[x], p.starts[x]
		if p.matches(pair.Ready) && k0 >= start && k0+k <= start+p.kern.pairWords(pair) {
			step = pair.Ready.step
			return pair.Ready.data[n0*step+p.kern.columnFloats(pair, k0-start)*p.kern.nr:], step
		}
	}
	return nil, 0
}

// copyReady is packCols for words [from,to) of one pair that is packed already. A column of the panels has step
// floats; the words start at float begin of it.
func (p *panels) copyReady(b []float32, pair *Pair, begin, step, from, to, n0, n1 int) {
	r, nr := pair.Ready, p.kern.nr
	from, to = p.kern.columnFloats(pair, from), p.kern.columnFloats(pair, to)
	for n := n0; n < n1; n += nr {
		copy(b[(n-n0)*step+begin*nr:], r.data[n*r.step+from*nr:n*r.step+to*nr])
	}
}

// UsesPanels reports whether a product such as c reads more than a few columns of B from
// panels: others have no use for a Prepacked.
func (e *Engine) UsesPanels(c *Call) bool {
	j := e.job(c)
	defer e.release(j)
	j.choose()
	return j.shape.readsPrepacked()
}

func (s *shape) readsPrepacked() bool { return s.N > colsThin && s.route().way == (panelsWay{}) }
