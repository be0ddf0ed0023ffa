package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/ir"
)

// siblings gives the launches from the first on that are products of the same
// matrix and do not need each other, such as q, k and v of one x.
func siblings(launches []ir.Launch, dims []int) []ir.Launch {
	const most = 8
	product := func(l *ir.Launch) bool { return l.Op == ir.Gemm && len(l.Out[0].Type.Shape) == 2 }
	n := 0
	for n < min(most, len(launches)) {
		l := &launches[n]
		if !product(l) || !sameRef(l.In[0], launches[0].In[0]) {
			break
		}
		free := true
		for i := range launches[:n] {
			free = free && apart(l, &launches[i], dims)
		}
		if !free {
			break
		}
		n++
	}
	return launches[:n]
}

func sameRef(a, b ir.Ref) bool {
	return a.Space == b.Space && a.Index == b.Index && a.Offset == b.Offset
}

// apart reports whether neither launch writes what the other reads or writes.
func apart(a, b *ir.Launch, dims []int) bool {
	clear := func(w, x ir.Ref) bool {
		if w.Space != x.Space || w.Space == ir.SpaceArg && w.Index != x.Index {
			return true
		}
		return w.Offset+w.Type.Bytes(dims) <= x.Offset || x.Offset+x.Type.Bytes(dims) <= w.Offset
	}
	for _, w := range a.Out {
		for _, x := range append(b.In[:len(b.In):len(b.In)], b.Out...) {
			if !clear(w, x) {
				return false
			}
		}
	}
	for _, w := range b.Out {
		for _, x := range a.In {
			if !clear(w, x) {
				return false
			}
		}
	}
	return true
}

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
