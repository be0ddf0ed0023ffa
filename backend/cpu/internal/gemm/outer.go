package gemm

import "unsafe"

// outers gives the kernels that multiply a pair of longK by outer products, one for each
// token, or nil where direct does.
func (j *job) outers(p *Pair) *kernels {
	switch j.shape.inLongK(p) {
	case byOuter:
		return j.k
	case byOuterPairs:
		return j.k.pairs
	}
	return nil
}

// outerOf gives the kernels whose outer products are taken for calls of a shape: those of
// pairs where operands are rounded.
func (k *kernels) outerOf(s *shape) *kernels {
	if s.outerRounds() {
		return k.pairs
	}
	return k
}

// outerShape is into how many groups so many rows of A are divided for outer,
// and how many columns of B go with each.
func (k *kernels) outerShape(rows int) (groups, cols int) {
	groups = ceil(rows, len(k.outer.cols)-1)
	return groups, k.outer.cols[ceil(rows, groups)]
}

// outerFloats is how many floats k elements of so many rows of A take, packed
// for outer: none where it takes them where they lie.
func (k *kernels) outerFloats(rows, elements int) int {
	if k.pairSize == 1 {
		return 0
	}
	return k.words(elements)*k.outerWidth(rows) + packSlack
}

// outerWidth is how many words lie side by side for so many rows.
func (k *kernels) outerWidth(rows int) int {
	const lanes = 16 // that pack writes at once
	if rows > lanes {
		return ceil(rows, lanes) * lanes
	}
	return rows
}

// outerA is a few rows of op(A) as outer products take them: word t of row i lies at
// 4i + t*step bytes.
type outerA struct {
	data unsafe.Pointer
	step int
}

// outerAOf gives elements of A from k0 on: where they lie, or packed into dst.
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

// outerWalk adds k elements from k0 on of a pair to the columns [n0,n1) of sum, whose rows
// are ld apart, a stretch of k at a time. While a block of columns is multiplied, as much of
// the next stretch is fetched, from front to back. Behind the last stretch come the rows
// after, if there are any.
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
			far, apart := after.of(b, (n-n0)*depth, cols*depth, n1-n0)
			for g := range groups {
				m0, m1 := g*j.c.M/groups, (g+1)*j.c.M/groups
				kern.outer.multiply(m1-m0, depth, at(a.data, size*m0+t/kern.pairSize*a.step), a.step, b, size*stride, far, apart,
					floats(sum, m0*ld+n), ld, min(cols, n1-n), p.Alpha)
				far, apart = 0, 0
			}
		}
	}
}

// nextRows is the rows of float32 that are multiplied next, stride elements apart; data is nil
// where there are none.
type nextRows struct {
	data   unsafe.Pointer
	stride int
}

// of says where n elements behind the first ones lie, in rows of width elements. They are
// fetched in two halves: far is how many bytes the first is from b, and apart how many the
// second is from the first. A half that does not fit into a row goes on behind the row.
func (r nextRows) of(b unsafe.Pointer, first, n, width int) (far, apart int) {
	if r.data == nil {
		return 0, 0
	}
	far, apart = first, n/2
	if width != r.stride { // a half of each of two rows
		far, apart = first/2/width*2*r.stride+first/2%width, r.stride
	}
	return int(uintptr(r.data)-uintptr(b)) + F32.Size()*far, F32.Size() * apart
}
