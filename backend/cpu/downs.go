package cpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// join lets a step of matrix multiplications y = x·Wᵀ + h·Bᵀ also compute h = x·Aᵀ of the directly preceding steps,
// reading x once for both. Each run decides by its number of rows whether that pays off. join reports whether there
// are such steps.
func (r *run) join(before []step, s *step) bool {
	products, ok := s.products.(*products)
	first := len(before)
	for ok && first > 0 && before[first-1].products != nil && r.joins(before[first-1].launches, s.launches) {
		first--
	}
	if before = before[first:]; len(before) == 0 {
		return false
	}
	downs := make([]*gemm.Call, 0, len(before))
	for i := range before {
		downs = append(downs, before[i].products.most()...)
	}
	if slices.ContainsFunc(products.most(), hasBlocks) {
		return false
	}
	e := r.dev.gemm
	r.need.products = r.need.products.With(e.NeedAfter(downs, products.most()))
	carries := func() bool {
		if rows, _ := r.matrix(before[0].launches[0].Out[0]); rows <= prefetchRows {
			return false // they wait for weights, not for x
		}
		downs = downs[:0]
		for i := range before {
			downs = append(downs, before[i].products.ready()...)
		}
		return e.Carries(downs, products.ready())
	}
	for i := range before {
		b, alone := &before[i], before[i].run
		b.run = func() error {
			if b == &before[0] {
				b.later = carries()
			}
			if b.later = before[0].later; b.later {
				return nil
			}
			return alone()
		}
	}
	alone := s.run
	s.run = func() error {
		if !before[0].later {
			return alone()
		}
		products.begin()
		e.RunAfter(downs, products.calls) // ready since they were asked for
		return nil
	}
	return true
}

// joins reports whether the multiplications x·Aᵀ in downs can be computed together with the first of launches: it
// reads the same x, and no launch overwrites their operands.
func (r *run) joins(downs, launches []ir.Launch) bool {
	for i := range downs {
		d := &downs[i]
		if a, ok := d.Attr.(ir.GemmAttr); ok && (a.N > 1 || a.HasC || a.P[0].TA) {
			return false
		}
		if !r.reads(&launches[0], d.In[0]) {
			return false
		}
		if slices.ContainsFunc(launches, func(l ir.Launch) bool { return l.Overwrites(d, r.dims) }) {
			return false
		}
	}
	return true
}

// reads reports whether x is the first matrix of one of a launch's products.
func (r *run) reads(l *ir.Launch, x ir.Ref) bool {
	for i := range l.Attr.(ir.GemmAttr).N {
		if l.In[2*i].Same(x) {
			return true
		}
	}
	return false
}

// dropping gives the leading launches that are dropout(x)·Aᵀ of one x, which are
// computed together.
func dropping(launches []ir.Launch) []ir.Launch {
	n := 0
	for n < len(launches) && launches[n].Op == ir.LoRADown && launches[n].In[0].Same(launches[0].In[0]) {
		n++
	}
	return launches[:n]
}

// loraDowns are launches of dropout(x)·Aᵀ that are computed together.
type loraDowns struct {
	list  []*loraDown
	calls []*gemm.Call
}

func newLoRADowns(r *run, launches []ir.Launch) *loraDowns {
	p := &loraDowns{}
	for i := range launches {
		p.list = append(p.list, newLoRADown(r, &launches[i]))
		p.calls = append(p.calls, &p.list[i].call)
	}
	return p
}

func (p *loraDowns) most() []*gemm.Call { return p.calls }

func (p *loraDowns) ready() []*gemm.Call {
	for _, d := range p.list {
		d.ready()
	}
	return p.calls
}

func (p *loraDowns) run() error {
	for _, d := range p.list {
		if err := d.run(); err != nil {
			return err
		}
	}
	return nil
}
