package gemm

import "unsafe"

// Filter transforms elements of a float32 operand while they are in cache (dropout, for example): dst[i] = f(src[i]),
// where src[0] is element start of the matrix. dst and src are equal or do not overlap. It runs on any worker and
// must not depend on which other elements are in the slice.
type Filter func(dst, src []float32, start int)

// Filters reports whether c, whose pairs may have filters, uses a way that applies them: to a float32 A in place, or
// to a float32 B in place. Otherwise Run panics. It depends only on the shape; the data of c is not read.
func (e *Engine) Filters(c *Call) bool {
	j := e.job(c)
	defer e.release(j)
	return j.shape.filters(j.choose())
}

// filters reports whether the filters of a call are applied on a route, and are of operands that can have some.
func (s *shape) filters(r *route) bool {
	for i := range s.Pairs {
		p := &s.Pairs[i]
		if p.FilterA != nil && (!r.filtersA || !s.direct(&p.A) || p.A.Trans) {
			return false
		}
		if p.FilterB != nil && (!r.filtersB || !s.direct(&p.B) || p.B.Trans) {
			return false
		}
	}
	return true
}

// filtered computes rows [i0,i1) and columns [j0,j1) of the filtered m, with row stride ld. A bfloat16 matrix is
// widened first; without a filter it is only widened.
func filtered(dst []float32, ld int, f Filter, m *Matrix, i0, i1, j0, j1 int) {
	n := j1 - j0
	if n == m.Stride && n == ld { // the rows follow each other
		i1, n = i0+1, n*(i1-i0)
	}
	for i := i0; i < i1; i++ {
		start := i*m.Stride + j0
		if m.Elem == BF16 {
			row := dst[(i-i0)*ld:][:n]
			if m.row(row, i, j0, j0+n); f != nil {
				f(row, row, start)
			}
			continue
		}
		f(dst[(i-i0)*ld:][:n], unsafe.Slice((*float32)(at(m.Data, F32.Size()*start)), n), start)
	}
}

// finish applies the filter of c to rows [m0,m1) and columns [n0,n1) of C, which
// are computed.
func (c *Call) finish(m0, m1, n0, n1 int) {
	if c.Filter == nil {
		return
	}
	m := Of(c.C, c.LDC)
	filtered(c.C[m0*c.LDC+n0:], c.LDC, c.Filter, &m, m0, m1, n0, n1)
}
