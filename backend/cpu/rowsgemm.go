package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Groups of at most manyOfGroup rows are multiplied by blocks of rowsOfBlock, several
// blocks at once: one would not keep all workers busy.
const (
	manyOfGroup = 64
	rowsOfBlock = 8
	blocksOnce  = 64
)

// rowsGemm is a launch of a RowsGemm: rows are grouped by index, each group is one or more matrix multiplications,
// and the results are written to the positions of the rows.
type rowsGemm struct {
	r     *run
	l     *ir.Launch
	a     ir.RowsGemmAttr
	types []ir.Type
	e     int // matrices
	k     int // columns of x

	rowGroups
	index             []int32
	scattered         []bool // per group: its rows are not contiguous
	x                 *gathered
	src, dst          []float32 // x and the result
	rows, results     []float32 // of groups that are apart, by their place in order
	scale, bias, base []float32
	calls             []gemm.Call
	list              []*gemm.Call

	copyBase, bring, back func(lo, hi int) // the methods, bound once
}

func rowsGemmKernel(r *run, l *ir.Launch) func() error {
	p := &rowsGemm{r: r, l: l, a: l.Attr.(ir.RowsGemmAttr), x: newGathered(r, l.In[0]), k: l.In[0].Type.Last().N}
	for _, v := range l.In {
		p.types = append(p.types, v.Type)
	}
	p.e = p.a.Matrices(p.types, 2)
	p.copyBase = func(lo, hi int) { copy(p.dst[lo:hi], p.base[lo:hi]) }
	p.bring, p.back = p.bringRows, p.putBack
	p.scattered = make([]bool, p.e)
	n, _ := r.matrix(l.In[0])
	r.reserve(p.scratchSize(n))
	p.calls = make([]gemm.Call, max(1, min(blocksOnce, n+p.e)))
	for i := range p.calls {
		p.calls[i] = gemm.Call{Invariant: true, Pairs: make([]gemm.Pair, 1)}
	}
	p.list = make([]*gemm.Call, 0, len(p.calls))
	p.reserveProducts(n)
	return p.run
}

// scratchSize returns the memory in floats for n rows.
func (p *rowsGemm) scratchSize(n int) int {
	return wordsOfGroups(n, p.e) + n*(p.k+p.a.Width)
}

// reserveProducts makes room for the products of n rows with any of the matrices.
func (p *rowsGemm) reserveProducts(n int) {
	if pair := p.pair(0); isForeign(&pair) {
		p.reserveBlocks(n)
		return
	}
	all := make([]*gemm.Call, 0, p.e)
	for e := range p.e {
		c := &gemm.Call{M: n, Invariant: true, Pairs: []gemm.Pair{p.pair(e)}}
		_, c.N = p.a.Size(p.types, 2, e)
		all = append(all, c)
		if p.a.Tables == 0 {
			break // they are all alike
		}
	}
	need := p.r.dev.gemm.NeedAll(append(all, all[0]))
	need.Group = len(p.calls)
	p.r.need.products = p.r.need.products.With(need)
}

// reserveBlocks is reserveProducts for matrices in blocks, which are multiplied one after the other.
func (p *rowsGemm) reserveBlocks(n int) {
	last := gemm.Call{}
	for e := range p.e {
		c := &gemm.Call{M: n, Invariant: true, Pairs: []gemm.Pair{p.pair(e)}}
		_, c.N = p.a.Size(p.types, 2, e)
		if e == 0 || c.N != last.N || c.Pairs[0].K != last.Pairs[0].K || c.Pairs[0].B != last.Pairs[0].B {
			p.r.reserveProduct(c)
		}
		if last = *c; p.a.Tables == 0 {
			break
		}
	}
}

// pair returns the multiplication by matrix e, without data.
func (p *rowsGemm) pair(e int) gemm.Pair {
	reads, _ := p.a.Size(p.types, 2, e)
	return gemm.Pair{A: gemm.Matrix{Stride: p.k}, B: p.r.form(p.weight(e), p.a.TB), K: reads, Alpha: 1}
}

// weight returns the input that contains matrix e.
func (p *rowsGemm) weight(e int) ir.Ref {
	if p.a.Tables == 0 {
		return p.l.In[2]
	}
	return p.l.In[2+e]
}

// matrix returns matrix e.
func (p *rowsGemm) matrix(e int) gemm.Matrix {
	m := p.r.operand(p.weight(e), p.a.TB)
	if p.a.Tables == 0 {
		b := p.r.bytes(p.l.In[2])
		m.Data = pointer(b[e*(len(b)/p.e):])
	}
	return m
}

func (p *rowsGemm) run() error {
	r, l := p.r, p.l
	p.index = r.i32(l.In[1])
	n := len(p.index)
	memory := r.temp(p.scratchSize(n))
	groups := wordsOfGroups(n, p.e)
	if err := p.sort(asWords(memory[:groups]), p.index, p.e); err != nil {
		return err
	}
	p.rows, p.results = memory[groups:][:n*p.k], memory[groups+n*p.k:]
	p.src, p.dst, p.scale, p.bias = r.f32(l.In[0]), r.f32(l.Out[0]), nil, nil
	if i := p.a.Scale(2); i >= 0 {
		p.scale = r.f32(l.In[i])
	}
	if i := p.a.Bias(); i >= 0 {
		p.bias = r.f32(l.In[i])
	}
	if i := p.a.C(); i >= 0 {
		if p.base = r.f32(l.In[i]); len(p.base) > 0 && &p.base[0] != &p.dst[0] {
			r.elements(len(p.dst), p.copyBase)
		}
	}
	if p.findApart() {
		p.x.copyRows(p.rows, p.src, p.order[:p.starts[p.e]])
		if p.a.HasC {
			r.rows(n, p.a.Width, p.bring)
		}
	}
	p.multiply()
	r.rows(n, p.a.Width, p.back)
	return nil
}

// findApart finds the groups whose rows are not contiguous, and reports whether there are any.
func (p *rowsGemm) findApart() (some bool) {
	for e := range p.e {
		rows, _ := p.group(e)
		p.scattered[e] = len(rows) > 0 && !together(rows)
		some = some || p.scattered[e]
	}
	return some
}

// bringRows gathers the addend of the groups that are not contiguous.
func (p *rowsGemm) bringRows(lo, hi int) {
	w := p.a.Width
	for at := lo; at < hi; at++ {
		i := int(p.order[at])
		if e := p.index[i]; e >= 0 && p.scattered[e] {
			copy(p.results[at*w:at*w+w], p.dst[i*w:])
		}
	}
}

// putBack scatters the results of groups that are not contiguous to their rows, and fills rows that no group
// computes.
func (p *rowsGemm) putBack(lo, hi int) {
	w := p.a.Width
	for at := lo; at < hi; at++ {
		i := int(p.order[at])
		row, e, gives := p.dst[i*w:i*w+w], int(p.index[i]), 0
		if e >= 0 {
			_, gives = p.a.Size(p.types, 2, e)
			if p.scattered[e] {
				copy(row[:gives], p.results[at*w:])
			}
		}
		rest := row[gives:]
		if !p.a.HasC {
			clear(rest)
		}
		if e >= 0 && p.bias != nil {
			for j, b := range p.bias[e*w+gives : e*w+w] {
				rest[j] += b
			}
		}
	}
}

// multiply computes the products of all groups.
func (p *rowsGemm) multiply() {
	p.list = p.list[:0]
	for e := range p.e {
		rows, first := p.group(e)
		if pair := p.pair(e); isForeign(&pair) {
			if len(rows) > 0 {
				p.add(e, rows, first, 0, len(rows))
				p.r.multiplyBlocks(p.list[0])
				p.list = p.list[:0]
			}
			continue
		}
		block := rowsOfBlock
		if len(rows) > manyOfGroup {
			block = len(rows)
		}
		for m := 0; m < len(rows); m += block {
			p.add(e, rows, first, m, min(len(rows), m+block))
			if len(p.list) == len(p.calls) || block > rowsOfBlock {
				p.flush()
			}
		}
	}
	p.flush()
}

func (p *rowsGemm) flush() {
	p.r.dev.gemm.RunAll(p.list)
	p.list = p.list[:0]
}

// add lists the product of rows [m0,m1) of a group, which begins at first in order.
func (p *rowsGemm) add(e int, rows []int32, first, m0, m1 int) {
	c := &p.calls[len(p.list)]
	pair := &c.Pairs[0]
	*pair = p.pair(e)
	pair.B = p.matrix(e)
	x, y := p.rows[(first+m0)*p.k:], p.results[(first+m0)*p.a.Width:]
	if !p.scattered[e] {
		x, y = p.src[(int(rows[0])+m0)*p.k:], p.dst[(int(rows[0])+m0)*p.a.Width:]
	}
	pair.A = gemm.Of(x, p.k)
	if p.scale != nil {
		pair.Alpha = p.scale[e]
	}
	_, c.N = p.a.Size(p.types, 2, e)
	c.M, c.C, c.LDC, c.Accumulate, c.Bias = m1-m0, y, p.a.Width, p.a.HasC, nil
	if p.bias != nil {
		c.Bias = p.bias[e*p.a.Width:][:c.N]
	}
	p.list = append(p.list, c)
}
