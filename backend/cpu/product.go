package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// batchKernel prepares the product of every matrix of a batch. For products of two
// matrices there is siblings.
func batchKernel(r *run, l *ir.Launch) func() error {
	p := newProduct(r, l)
	r.reserveProduct(&p.call)
	multiply := r.batched(l, &p.call)
	return func() error {
		if p.measure() {
			p.begin()
			multiply()
		}
		return nil
	}
}

// matrixProduct is a launch of a matrix product.
type matrixProduct struct {
	r      *run
	l      *ir.Launch
	call   gemm.Call
	packs  []bool // per pair: would use a packed copy of B
	place  result
	src    values
	addend func(lo, hi int)
}

func newProduct(r *run, l *ir.Launch) *matrixProduct {
	a := l.Attr.(ir.GemmAttr)
	p := &matrixProduct{r: r, l: l, call: gemm.Call{Pairs: make([]gemm.Pair, a.N), Accumulate: a.HasC}, packs: make([]bool, a.N)}
	p.addend = func(lo, hi int) { p.src.widen(p.call.C[lo:hi], lo) }
	p.place = newResult(&p.call, l.Out[0])
	p.sizes()
	if len(l.Out[0].Type.Shape) == 2 {
		for i := range p.packs {
			p.packs[i] = r.requestPack(&p.call, i, l.In[2*i+1])
		}
	}
	return p
}

// sizes sets the sizes of this run.
func (p *matrixProduct) sizes() {
	r, c, out := p.r, &p.call, p.l.Out[0]
	a, rank := p.l.Attr.(ir.GemmAttr), len(out.Type.Shape)
	c.M, c.N = r.axis(out, rank-2), r.axis(out, rank-1)
	c.LDC = c.N
	for i := range a.N {
		x, t := p.l.In[2*i], a.P[i]
		c.Pairs[i].Alpha, c.Pairs[i].K = t.Alpha, r.axis(x, rank-1)
		if t.TA {
			c.Pairs[i].K = r.axis(x, rank-2)
		}
		c.Pairs[i].A, c.Pairs[i].B = r.form(x, t.TA), r.form(p.l.In[2*i+1], t.TB)
	}
}

// measure sets the sizes and the output of this run, and reports whether there is anything to compute.
func (p *matrixProduct) measure() bool {
	p.sizes()
	a, c := p.l.Attr.(ir.GemmAttr), &p.call
	if i := a.Bias(); i >= 0 {
		c.Bias = p.r.f32(p.l.In[i])
	}
	if p.place.set(p.r, c) == 0 {
		return false
	}
	if i := a.C(); i >= 0 && c.Stored != nil {
		c.Stored.From = p.r.operand(p.l.In[i], false)
	}
	return true
}

// ready returns the call with its data, nil if there is nothing to compute.
func (p *matrixProduct) ready() *gemm.Call {
	if !p.measure() {
		return nil
	}
	p.point()
	return &p.call
}

// begin copies the addend of the multiplications to the output if that is float32; otherwise it is added when the
// result is rounded.
func (p *matrixProduct) begin() {
	if i := p.l.Attr.(ir.GemmAttr).C(); i >= 0 && p.call.Stored == nil && !p.l.In[i].Same(p.l.Out[0]) {
		p.src = p.r.values(p.l.In[i])
		p.r.elements(len(p.call.C), p.addend)
	}
}

// result is the destination of a matrix multiplication.
type result struct{ v ir.Ref }

// newResult returns the result v, and makes c write narrow elements if v is stored as such.
func newResult(c *gemm.Call, v ir.Ref) result {
	if v.Store != tensor.Invalid {
		c.Stored = &gemm.Stored{}
	}
	return result{v}
}

// set sets the output memory of this run, and returns its number of elements.
func (p *result) set(r *run, c *gemm.Call) int {
	n := p.v.Type.Shape.Elements(r.dims)
	if c.Stored == nil {
		c.C = r.f32(p.v)
	} else if n > 0 {
		c.Stored.Data = pointer(r.bytes(p.v))
	}
	return n
}

// point sets the data of the pairs.
func (p *matrixProduct) point() {
	for i := range p.call.Pairs {
		pair := &p.call.Pairs[i]
		pair.A.Data, pair.B.Data = p.r.operand(p.l.In[2*i], false).Data, p.r.operand(p.l.In[2*i+1], false).Data
		if p.packs[i] {
			p.r.prepack(pair, p.l.In[2*i+1], p.call.N)
		}
	}
}

// batched runs the product of every matrix of a batch.
func (r *run) batched(l *ir.Launch, c *gemm.Call) func() {
	each := gemm.Call{Pairs: make([]gemm.Pair, 1)}
	return func() {
		batch := r.axis(l.Out[0], 0)
		x, y := r.bytes(l.In[0]), r.bytes(l.In[1])
		dx, dy := len(x)/batch, len(y)/batch
		pairs := each.Pairs
		each, pairs[0] = *c, c.Pairs[0]
		each.Pairs = pairs
		for b := range batch {
			if dx > 0 {
				pairs[0].A.Data, pairs[0].B.Data = pointer(x[b*dx:]), pointer(y[b*dy:])
			}
			each.C = c.C[b*c.M*c.N:][:c.M*c.N]
			r.multiply(&each)
		}
	}
}
