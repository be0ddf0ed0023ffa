package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// rowsGemmGrad is a launch of a RowsGemmGrad: one product for each matrix, over the
// rows of its index.
type rowsGemmGrad struct {
	r     *run
	l     *ir.Launch
	a     ir.RowsGemmAttr
	types []ir.Type
	e, k  int // matrices, and columns of x

	rowGroups
	dy, x *gathered
	calls []gemm.Call
	list  []*gemm.Call
}

func rowsGemmGradKernel(r *run, l *ir.Launch) func() error {
	p := &rowsGemmGrad{r: r, l: l, a: l.Attr.(ir.RowsGemmAttr), dy: newGathered(r, l.In[0]), x: newGathered(r, l.In[1]), k: l.In[1].Type.Last().N}
	for _, v := range l.In {
		p.types = append(p.types, v.Type)
	}
	p.e = p.a.Matrices(p.types, 3)
	n, _ := r.matrix(l.In[1])
	r.reserve(p.scratchSize(n))
	p.calls, p.list = make([]gemm.Call, p.e), make([]*gemm.Call, p.e)
	for e := range p.e {
		p.calls[e].Pairs, p.list[e] = make([]gemm.Pair, 1), &p.calls[e]
		p.size(e, n)
		r.reserveProduct(p.list[e])
	}
	r.need.products = r.need.products.With(r.dev.gemm.NeedAll(p.list))
	return p.run
}

func (p *rowsGemmGrad) scratchSize(n int) int { return wordsOfGroups(n, p.e) + n*(p.k+p.a.Width) }

// size sets the shape of the multiplication for matrix e over this number of rows.
func (p *rowsGemmGrad) size(e, rows int) {
	c := &p.calls[e]
	reads, gives := p.a.Size(p.types, 3, e)
	dy, x := gemm.Matrix{Stride: p.a.Width}, gemm.Matrix{Stride: p.k}
	if c.M, c.N = gives, reads; !p.a.TB {
		c.M, c.N = reads, gives
		dy, x = x, dy
	}
	c.LDC = c.N
	c.Pairs[0] = gemm.Pair{A: dy.T(), B: x, K: rows, Alpha: 1}
}

func (p *rowsGemmGrad) run() error {
	r, l := p.r, p.l
	index := r.i32(l.In[2])
	n := len(index)
	memory := r.temp(p.scratchSize(n))
	groups := wordsOfGroups(n, p.e)
	if err := p.sort(asWords(memory[:groups]), index, p.e); err != nil {
		return err
	}
	dy, x := memory[groups:][:n*p.a.Width], memory[groups+n*p.a.Width:]
	mine := p.order[:p.starts[p.e]]
	p.dy.copyRows(dy, r.f32(l.In[0]), mine)
	p.x.copyRows(x, r.f32(l.In[1]), mine)
	for e := range p.e {
		rows, first := p.group(e)
		p.size(e, len(rows))
		c, out := &p.calls[e], l.Out[0]
		if p.a.Tables > 0 {
			out = l.Out[e]
		}
		c.C = r.f32(out)
		if p.a.Tables == 0 {
			c.C = c.C[e*c.M*c.N:][:c.M*c.N]
		}
		if len(rows) == 0 {
			continue
		}
		pair := &c.Pairs[0]
		a, b := dy[first*p.a.Width:], x[first*p.k:]
		if !p.a.TB {
			a, b = b, a
		}
		pair.A.Data, pair.B.Data = gemm.Of(a, 1).Data, gemm.Of(b, 1).Data
		if i := p.a.Scale(3); i >= 0 {
			pair.Alpha = r.f32(l.In[i])[e]
		}
	}
	r.dev.gemm.RunAll(p.list)
	return nil
}
