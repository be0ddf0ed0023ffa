package cpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// siblings returns the leading launches that multiply the same matrix, all transposed or all not, without depending
// on each other, such as q, k and v of one x.
func siblings(launches []ir.Launch, dims []int) []ir.Launch {
	const most = 8
	n := 0
	for n < min(most, len(launches)) {
		l := &launches[n]
		if !plain(l) || !l.In[0].Same(launches[0].In[0]) || first(l).TA != first(&launches[0]).TA {
			break
		}
		if slices.ContainsFunc(launches[:n], func(o ir.Launch) bool { return l.Conflicts(&o, dims) }) {
			break
		}
		n++
	}
	return launches[:n]
}

// plain reports whether a launch is a product of two matrices, not of batches.
func plain(l *ir.Launch) bool { return l.Op == ir.Gemm && len(l.Out[0].Type.Shape) == 2 }

// first returns the first matrix multiplication of a launch.
func first(l *ir.Launch) ir.ProductAttr { return l.Attr.(ir.GemmAttr).P[0] }

// manyProducts are the calls of several launches.
type manyProducts interface {
	// most returns the calls at the largest sizes, without data.
	most() []*gemm.Call
	// ready returns the calls with data that have something to compute.
	ready() []*gemm.Call
}

// products are launches that are computed together.
type products struct {
	r     *run
	list  []*matrixProduct
	calls []*gemm.Call
}

func newProducts(r *run, launches []ir.Launch) *products {
	p := &products{r: r}
	for i := range launches {
		p.list = append(p.list, newProduct(r, &launches[i]))
	}
	p.calls = make([]*gemm.Call, 0, len(p.list))
	r.need.products = r.need.products.With(r.dev.gemm.NeedAll(wideAll(p.most())))
	for _, c := range p.most() {
		r.reserveBlocks(c)
	}
	return p
}

func (p *products) most() []*gemm.Call {
	p.calls = p.calls[:0]
	for _, product := range p.list {
		p.calls = append(p.calls, &product.call)
	}
	return p.calls
}

func (p *products) ready() []*gemm.Call {
	p.calls = p.calls[:0]
	for _, product := range p.list {
		if c := product.ready(); c != nil {
			p.calls = append(p.calls, c)
		}
	}
	return p.calls
}

// begin copies the addends of ready calls to their outputs.
func (p *products) begin() {
	for _, product := range p.list {
		if len(product.call.C) > 0 {
			product.begin()
		}
	}
}

func (p *products) run() error {
	calls := p.ready()
	p.begin()
	p.r.multiplyAll(calls)
	return nil
}
