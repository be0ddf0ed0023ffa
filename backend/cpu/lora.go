package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// droppedRows is the maximum number of input rows that are stored with dropout applied, if the matrix multiplication
// cannot apply it.
const droppedRows = 256

// dropped prepares a pass over dropout(x) for products that cannot apply dropout
// themselves: f is called for a few rows at a time.
func (r *run) dropped(d *drop, x ir.Ref, f func(lo, hi int, rows gemm.Matrix)) func() {
	n, cols := r.matrix(x)
	r.reserve(min(n, droppedRows) * cols)
	var src values
	var tmp []float32
	at := 0 // element that tmp begins with
	part := func(i, j int) {
		from := tmp[i:j]
		if src.bf16 == nil {
			from = src.f32[at+i : at+j]
		} else {
			src.widen(from, at+i)
		}
		d.apply(tmp[i:j], from, at+i)
	}
	return func() {
		n, cols := r.matrix(x)
		src, tmp = r.values(x), r.temp(min(n, droppedRows)*cols)
		for lo := 0; lo < n; lo += droppedRows {
			hi := min(n, lo+droppedRows)
			at = lo * cols
			r.elements((hi-lo)*cols, part)
			f(lo, hi, gemm.Of(tmp, cols))
		}
	}
}

// loraDownKernel makes the device report support for LoRADown. Launches are prepared by dropping, which computes all
// launches of one x together.
func loraDownKernel(r *run, l *ir.Launch) func() error { return newLoRADown(r, l).run }

// loraDown is a launch of dropout(x)·Aᵀ.
type loraDown struct {
	r    *run
	l    *ir.Launch
	drop *drop
	call gemm.Call // with dropout as a filter
	pass func()    // the fallback in several multiplications
}

func newLoRADown(r *run, l *ir.Launch) *loraDown {
	p := &loraDown{r: r, l: l, drop: r.newDrop(l.Attr.(ir.DropoutAttr), l.In[2], l.In[0])}
	n, d := r.matrix(l.In[0])
	rank := l.Out[0].Type.Last().N
	p.call = gemm.Call{M: n, N: rank, LDC: rank, Pairs: []gemm.Pair{{A: r.form(l.In[0], false), B: r.form(l.In[1], true), K: d, Alpha: 1, FilterA: p.drop.apply}}}
	part := gemm.Call{M: min(n, droppedRows), N: rank, LDC: rank, Pairs: []gemm.Pair{p.call.Pairs[0]}}
	part.Pairs[0].FilterA, part.Pairs[0].A = nil, gemm.Matrix{Stride: d}
	r.reserveProduct(&p.call)
	r.reserveProduct(&part)
	p.pass = r.dropped(p.drop, l.In[0], func(lo, hi int, x gemm.Matrix) {
		part.M, part.C = hi-lo, p.call.C[lo*rank:hi*rank]
		part.Pairs[0].A, part.Pairs[0].B = x, p.call.Pairs[0].B
		r.dev.gemm.Run(&part)
	})
	return p
}

// ready draws the mask and gives the call on its data.
func (p *loraDown) ready() *gemm.Call {
	n, d := p.r.matrix(p.l.In[0])
	p.drop.draw(n * d)
	c := &p.call
	c.M, c.C = n, p.r.f32(p.l.Out[0])
	c.Pairs[0].A, c.Pairs[0].B = p.r.operand(p.l.In[0], false), p.r.operand(p.l.In[1], true)
	return c
}

func (p *loraDown) run() error {
	if c := p.ready(); p.r.dev.gemm.Filters(c) {
		p.r.dev.gemm.Run(c)
	} else {
		p.pass()
	}
	return nil
}

func loraDownGradKernel(r *run, l *ir.Launch) func() error {
	var dh, out []float32
	n, _ := r.matrix(l.In[1])
	rank, d := r.matrix(l.Out[0])
	drop := r.newDrop(l.Attr.(ir.DropoutAttr), l.In[2], l.In[1])
	whole := gemm.Call{M: rank, N: d, LDC: d, Pairs: []gemm.Pair{{K: n, Alpha: 1, FilterB: drop.apply}}}
	whole.Pairs[0].A, whole.Pairs[0].B = gemm.Matrix{Stride: rank, Trans: true}, r.form(l.In[1], false)
	part := gemm.Call{M: rank, N: d, LDC: d, Pairs: []gemm.Pair{whole.Pairs[0]}}
	part.Pairs[0].K, part.Pairs[0].FilterB, part.Pairs[0].B = min(n, droppedRows), nil, gemm.Matrix{Stride: d}
	r.reserveProduct(&whole)
	r.reserveProduct(&part)
	pass := r.dropped(drop, l.In[1], func(lo, hi int, x gemm.Matrix) {
		part.C, part.Accumulate = out, lo > 0
		p := &part.Pairs[0]
		p.A, p.B, p.K = gemm.Of(dh[lo*rank:hi*rank], rank).T(), x, hi-lo
		r.dev.gemm.Run(&part)
	})
	return func() error {
		n, d := r.matrix(l.In[1])
		drop.draw(n * d)
		dh, out = r.f32(l.In[0]), r.f32(l.Out[0])
		p := &whole.Pairs[0]
		p.A, p.B, p.K, whole.C = gemm.Of(dh, rank).T(), r.operand(l.In[1], false), n, out
		if r.dev.gemm.Filters(&whole) {
			r.dev.gemm.Run(&whole)
		} else {
			pass()
		}
		return nil
	}
}

func loraDownInputGradKernel(r *run, l *ir.Launch) func() error {
	n, rank := r.matrix(l.In[0])
	d := l.Out[0].Type.Last().N
	drop := r.newDrop(l.Attr.(ir.DropoutAttr), l.In[2], l.Out[0])
	c := gemm.Call{M: n, N: d, LDC: d, Pairs: []gemm.Pair{{B: r.form(l.In[1], false), K: rank, Alpha: 1}}, Filter: drop.apply}
	c.Pairs[0].A.Stride = rank
	place := newResult(&c, l.Out[0])
	r.reserveProduct(&c)
	return func() error {
		c.M = r.axis(l.In[0], 0)
		drop.draw(place.set(r, &c))
		c.Pairs[0].A, c.Pairs[0].B = r.operand(l.In[0], false), r.operand(l.In[1], false)
		r.dev.gemm.Run(&c)
		return nil
	}
}
