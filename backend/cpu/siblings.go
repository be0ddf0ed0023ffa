package cpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/ir"
)

// siblings gives the launches from the first on that are products of the same
// matrix and do not need each other, such as q, k and v of one x.
func siblings(launches []ir.Launch, dims []int) []ir.Launch {
	const most = 8
	n := 0
	for n < min(most, len(launches)) {
		l := &launches[n]
		if !plain(l) || !l.In[0].Same(launches[0].In[0]) {
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

// productsKernel prepares products that are computed together.
func productsKernel(r *run, launches []ir.Launch) func() error {
	products, calls := make([]*matrixProduct, len(launches)), make([]*gemm.Call, 0, len(launches))
	for i := range launches {
		products[i] = newProduct(r, &launches[i])
		calls = append(calls, &products[i].call)
	}
	r.need.products = r.need.products.With(r.dev.gemm.NeedAll(calls))
	return func() error {
		calls = calls[:0]
		for _, p := range products {
			if p.ready() {
				p.point()
				calls = append(calls, &p.call)
			}
		}
		r.dev.gemm.RunAll(calls)
		return nil
	}
}
