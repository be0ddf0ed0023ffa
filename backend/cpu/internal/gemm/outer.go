package gemm

import "unsafe"

// outers returns the kernels that multiply a pair of longK by outer products, one per token, or nil if direct does.
func (j *job) outers(p *Pair) *kernels {
	switch j.shape.inLongK(p) {
	case byOuter:
		return j.k
	case byOuterPairs:
		return j.k.pairs
	}
	return nil
}

// outerOf returns the outer-product kernels for calls of a shape: the kernels of pairs if operands are rounded.
func (k *kernels) outerOf(s *shape) *kernels {
	if s.outerRounds() {
		return k.pairs
	}
	return k
}

// outerShape returns the number of groups that rows rows of A are divided into for outer, and the number of columns
// of B per group.
func (k *kernels) outerShape(rows int) (groups, cols int) {
	groups = ceil(rows, len(k.outer.cols)-1)
	return groups, k.outer.cols[ceil(rows, groups)]
}

// outerFloats returns the number of floats for elements elements of rows rows of A packed for outer; 0 if A is used
// in place.
func (k *kernels) outerFloats(rows, elements int) int {
	if k.pairSize == 1 {
		return 0
	}
	return k.words(elements)*k.outerWidth(rows) + packSlack
}

// outerWidth returns the number of adjacent words for rows rows.
func (k *kernels) outerWidth(rows int) int {
	const lanes = 16 // that pack writes at once
	if rows > lanes {
		return ceil(rows, lanes) * lanes
	}
	return rows
}

// outerA holds a few rows of op(A) in the format of outer products: word t of row i is at 4i + t*step bytes.
type outerA struct {
	data unsafe.Pointer
	step int
}

// outerAOf returns elements of A from k0 on: in place, or packed into dst.
func (k *kernels) outerAOf(dst []float32, a *Matrix, rows, k0, elements int) outerA {
	row, col := a.steps()
	src := at(a.Data, k0*col)
	if len(dst) == 0 {
		return outerA{src, col}
	}
	width := k.outerWidth(rows)
	k.pack(floats(dst, 0), width, src, a.Elem, row, col, rows, elements, 1)
	return outerA{floats(dst, 0), F32.Size() * width}
}

// outerWalk adds k elements from k0 on of a pair to the columns [n0,n1) of sum, with row stride ld, one block of k at
// a time. While a block of columns is multiplied, an equal share of the next block of k is prefetched, from front to
// back; after the last block, the rows in after, if any.
func (j *job) outerWalk(kern *kernels, p *Pair, a outerA, k0, k, stretch, n0, n1 int, sum []float32, ld int, after nextRows) {
	const size = 4
	groups, cols := kern.outerShape(j.c.M)
	stride := p.B.Stride
	for t := 0; t < k; t += stretch {
		depth := min(stretch, k-t)
		if t+depth < k {
			after = nextRows{at(p.B.Data, size*((k0+t+depth)*stride+n0)), stride}
		}
		for n := n0; n < n1; n += cols {
			b := at(p.B.Data, size*((k0+t)*stride+n))
			far, apart := after.distances(b, (n-n0)*depth, cols*depth, n1-n0)
			for g := range groups {
				m0, m1 := g*j.c.M/groups, (g+1)*j.c.M/groups
				kern.outer.multiply(m1-m0, depth, at(a.data, size*m0+t/kern.pairSize*a.step), a.step, b, size*stride, far, apart,
					floats(sum, m0*ld+n), ld, min(cols, n1-n), p.Alpha)
				far, apart = 0, 0
			}
		}
	}
}

// nextRows holds the float32 rows that are multiplied next, stride elements apart; data is nil if there are none.
type nextRows struct {
	data   unsafe.Pointer
	stride int
}

// distances returns the position of n elements after the first ones, in rows of width elements. They are prefetched in two
// halves: far is the distance in bytes of the first half from b, and apart that of the second from the first. A half
// that does not fit into a row continues past the row.
func (r nextRows) distances(b unsafe.Pointer, first, n, width int) (far, apart int) {
	if r.data == nil {
		return 0, 0
	}
	far, apart = first, n/2
	if width != r.stride { // a half of each of two rows
		far, apart = first/2/width*2*r.stride+first/2%width, r.stride
	}
	return int(uintptr(r.data)-uintptr(b)) + F32.Size()*far, F32.Size() * apart
}
