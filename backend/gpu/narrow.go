package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of kernels/cuda/gemm_narrow.cu: products of a large bfloat16 matrix with the narrow
// matrices of adapters. A launch computes all products of the same matrix that follow each other.

const (
	narrowColumns = 64  // the most columns of the narrow matrices of a matrix together
	narrowStep    = 8   // columns of both are multiples of this
	narrowLeast   = 256 // the fewest columns of the large matrix
	narrowSums    = 3   // the most products of a launch, or pairs of products
	narrowAhead   = 16  // the number of following launches that are searched for further products
	narrowStrip   = 256 // columns of a block
	narrowTile    = 128 // rows of a block of gemm_narrow_down
	narrowBlocks  = 256 // a product of fewer blocks is computed in parts
	narrowParts   = 64  // at most
)

// narrowKind tells products with a narrow matrix apart.
type narrowKind int

const (
	notNarrow   narrowKind = iota
	narrowDown             // x·Aᵀ
	narrowGrad             // dhᵀ·x, the gradient of A
	narrowLeft             // dyᵀ·h, the gradient of B
	narrowRight            // dy·B, the gradient of h
)

// narrowProduct is a product of a large and a narrow matrix.
type narrowProduct struct {
	kind       narrowKind
	t          terms
	big, small ir.Ref
	n          int // columns of the narrow matrix
	launch     int // of the program
}

// narrowOf returns the product that a launch computes, of kind notNarrow if the kernels do not compute it.
func narrowOf(l *ir.Launch, t *Target, dims []int) (p narrowProduct) {
	if l.Op != ir.Gemm || t.NarrowRows == 0 || t.Precision != backend.BF16 {
		return p
	}
	s := termsOf(l)
	if len(s.list) != 1 || !s.chained || s.hasBias || s.out.Type.Rank() != 2 || s.stored() != 0 {
		return p
	}
	a, b := s.list[0].a, s.list[0].b
	axis := 1
	switch ta, tb := s.list[0].ta, s.list[0].tb; {
	case ta && tb:
		return p
	case tb:
		p.kind, p.big, p.small, axis = narrowDown, a, b, 0
	case !ta:
		p.kind, p.big, p.small = narrowRight, a, b
	case a.Stored() == tensor.F32:
		p.kind, p.big, p.small = narrowGrad, b, a
	default:
		p.kind, p.big, p.small = narrowLeft, a, b
	}
	n, width := p.small.Type.Shape[axis], p.big.Type.Shape[1]
	p.t, p.n = s, n.N
	if p.big.Stored() != tensor.BF16 || p.small.Stored() != tensor.F32 || p.rows(dims) < t.NarrowRows ||
		n.Var != 0 || n.N == 0 || n.N > narrowColumns || n.N%narrowStep != 0 || width.Var != 0 || width.N < narrowLeast || width.N%narrowStep != 0 ||
		!t.holds(narrowShared(p.kind, n.N)) {
		p.kind = notNarrow
	}
	return p
}

// rows and width return the sizes of the large matrix.
func (p *narrowProduct) rows(dims []int) int { return p.big.Type.Shape[0].Resolve(dims) }
func (p *narrowProduct) width() int          { return p.big.Type.Shape[1].N }

// same reports whether two products have the same large matrix.
func (p *narrowProduct) same(o *narrowProduct) bool {
	return p.big.Same(o.big) && p.big.Type.Equal(o.big.Type)
}

// backward reports whether the product is half of a pair: the gradients of B and of h read the same matrix.
func (p *narrowProduct) backward() bool { return p.kind == narrowLeft || p.kind == narrowRight }

// narrowShared returns the shared memory of a block: three stages, and B.
func narrowShared(kind narrowKind, n int) int {
	f := blocks(n, 16)
	switch kind {
	case narrowDown:
		return 3 * (32<<10 + 4096*f)
	case narrowGrad:
		return 3 * (32<<10 + 64*(32*f+16))
	}
	return 3*(32<<10+64*(32*f+16)) + 8192*f
}

// takesNarrow reports whether the launch of a group of products can compute another one.
func takesNarrow(group []narrowProduct, p *narrowProduct, t *Target) bool {
	first := &group[0]
	if !first.backward() {
		n := p.n
		for i := range group {
			n += group[i].n
		}
		return p.kind == first.kind && p.same(first) && len(group) < narrowSums && n <= narrowColumns && t.holds(narrowShared(p.kind, n))
	}
	if !p.backward() || p.big.Type.Shape[0] != first.big.Type.Shape[0] {
		return false
	}
	pairs := 0
	for i := range group {
		o := &group[i]
		if o.same(p) {
			return o.n == p.n && !slices.ContainsFunc(group, func(o narrowProduct) bool { return o.same(p) && o.kind == p.kind })
		}
		if !slices.ContainsFunc(group[:i], func(b narrowProduct) bool { return b.same(o) }) {
			pairs++
		}
	}
	return pairs < narrowSums
}

// gather returns the program with products that one launch computes in succession. A launch moves only past launches
// that neither read nor write what it writes, and do not write what it reads.
func gather(p *ir.Program, t *Target) *ir.Program {
	dims, list := p.MaxDims(), slices.Clone(p.Launches)
	conflicts := func(some, others []ir.Launch) bool {
		return slices.ContainsFunc(some, func(l ir.Launch) bool {
			return slices.ContainsFunc(others, func(o ir.Launch) bool { return l.Conflicts(&o, dims) })
		})
	}
	for i := 0; i < len(list); i++ {
		first := narrowOf(&list[i], t, dims)
		if first.kind == notNarrow {
			continue
		}
		group, most := []narrowProduct{first}, min(len(list), i+1+narrowAhead) // the group ends at i
		for j := i + 1; j < most; j++ {
			next := narrowOf(&list[j], t, dims)
			if next.kind == notNarrow || !takesNarrow(group, &next, t) {
				continue
			}
			members, between := list[i+1-len(group):i+1], list[i+1:j]
			switch {
			case conflicts(list[j:j+1], members):
				continue
			case !conflicts(list[j:j+1], between):
				moved := list[j]
				copy(list[i+2:j+1], list[i+1:j])
				list[i+1] = moved
				i++
			case !conflicts(members, between):
				moved := slices.Clone(members)
				copy(list[i+1-len(group):], between)
				copy(list[j-len(group):], moved)
				i = j
			default:
				continue
			}
			group = append(group, next)
		}
	}
	gathered := *p
	gathered.Launches = list
	return &gathered
}

// narrowLaunch is one launch of products of large matrices with narrow ones, and one that adds up their parts.
type narrowLaunch struct {
	list      []narrowProduct // in a backward pass pairs, narrowLeft and narrowRight, of the same large matrix
	main, sum *Kernel
	least     int // rows
}

// newNarrow plans the products that launch l computes together with launches that follow it, or returns nil if there is
// no kernel for them.
func newNarrow(c *compiler, l *ir.Launch) (*narrowLaunch, error) {
	first := narrowOf(l, &c.target, c.dims)
	if first.kind == notNarrow {
		return nil, nil
	}
	group, members := []narrowProduct{first}, []*ir.Launch{l}
	for i := c.launch + 1; i < len(c.prog.Launches); i++ {
		next := &c.prog.Launches[i]
		q := narrowOf(next, &c.target, c.dims)
		if q.kind == notNarrow || c.narrows[i] != nil || !takesNarrow(group, &q, &c.target) || c.depends(next, members) {
			break
		}
		group, members = append(group, q), append(members, next)
	}
	p := &narrowLaunch{least: c.target.NarrowRows}
	for i := range group {
		q := &group[i]
		q.launch = c.launch + i
		if !q.backward() {
			p.list = append(p.list, *q)
			continue
		}
		for j := i + 1; j < len(group); j++ {
			if o := &group[j]; o.same(q) {
				o.launch = c.launch + j
				p.list = append(p.list, *q, *o)
				if q.kind == narrowRight {
					slices.Reverse(p.list[len(p.list)-2:])
				}
			}
		}
	}
	if !slices.ContainsFunc(p.list, func(q narrowProduct) bool { return q.launch == c.launch }) {
		return nil, nil // half of a pair alone
	}
	bytes, most, name := 0, 0, [...]string{narrowDown: "down", narrowGrad: "grad", narrowLeft: "back", narrowRight: "back"}[first.kind]
	for i := range p.list {
		q := &p.list[i]
		c.narrows[q.launch] = p
		parts, size := q.parts(c.dims)
		bytes += 4 * parts * size
		if most = max(most, q.n); !q.backward() {
			most = p.columns()
		}
	}
	width := 32
	if most > width {
		width = narrowColumns
	}
	var err error
	if p.main, err = c.sharing("gemm_narrow", fmt.Sprintf("gemm_narrow_%s_%d", name, width), 256, narrowShared(first.kind, most)); err != nil {
		return nil, err
	}
	if p.sum, err = c.kernel("gemm_narrow", "gemm_narrow_sum", 256); err != nil {
		return nil, err
	}
	c.reserve(bytes)
	c.saves(p.saved)
	return p, nil
}

// saved returns the bytes of the large matrices that products read together.
func (p *narrowLaunch) saved(r *Run) (read, written int) {
	if !p.takes(r) {
		return 0, 0
	}
	for i := range p.list[1:] {
		if q := &p.list[1+i]; q.same(&p.list[i]) {
			read += q.big.Bytes(r.Dims)
		}
	}
	return read, 0
}

// columns returns the number of columns of all narrow matrices.
func (p *narrowLaunch) columns() (n int) {
	for i := range p.list {
		n += p.list[i].n
	}
	return n
}

// parts returns the number of parts of a product, which does not depend on other products, and the elements of each.
func (p *narrowProduct) parts(dims []int) (parts, size int) {
	rows, width := p.rows(dims), p.width()
	strips := blocks(width, narrowStrip)
	switch p.kind {
	case narrowDown:
		return max(1, min(width/1024, 8)), rows * p.n
	case narrowRight:
		return strips, rows * p.n
	}
	return max(1, min(narrowBlocks/strips, rows/256, narrowParts)), width * p.n
}

// takes reports whether the launch computes its products in this run.
func (p *narrowLaunch) takes(r *Run) bool {
	if p.list[0].rows(r.Dims) < p.least {
		return false
	}
	for i := range p.list {
		q := &p.list[i]
		if !r.aligned(q.big, q.small, q.t.out) || q.t.hasC && !r.aligned(q.t.addend) {
			return false
		}
	}
	return true
}

func (p *narrowLaunch) skip() {
	p.main.skip()
	p.sum.skip()
}

// The parameters of products are numbered.
var (
	narrowPartial, narrowRowsOf, narrowX, narrowA = numbered("partial"), numbered("rows"), numbered("x"), numbered("a")
	narrowH, narrowB, narrowK, narrowPart         = numbered("h"), numbered("b"), numbered("k"), numbered("parts")
	narrowSize                                    = numbered("size")
)

func (p *narrowLaunch) fill(r *Run) {
	m := p.list[0].rows(r.Dims)
	var partial [2 * narrowSums]Pointer
	at := r.Scratch
	for i := range p.list {
		parts, size := p.list[i].parts(r.Dims)
		partial[i] = at
		at += Pointer(4 * parts * size)
	}
	p.main.grid(p.blocks(r.Dims), 1, 1)
	if p.list[0].backward() {
		p.pairs(r, m, &partial)
	} else {
		p.products(r, m, &partial)
	}
	p.add(r, &partial)
}

// blocks returns the number of blocks of the products.
func (p *narrowLaunch) blocks(dims []int) (n int) {
	for i := range p.list {
		q := &p.list[i]
		parts, _ := q.parts(dims)
		switch q.kind {
		case narrowDown: // all have the same
			n = parts * blocks(q.rows(dims), narrowTile)
		case narrowGrad:
			n = parts * blocks(q.width(), narrowStrip)
		case narrowLeft:
			n += parts * blocks(q.width(), narrowStrip)
		}
	}
	return n
}

// products adds the arguments of products of one large matrix.
func (p *narrowLaunch) products(r *Run, m int, partial *[2 * narrowSums]Pointer) {
	first := &p.list[0]
	for i := range narrowSums {
		p.main.pointer(narrowPartial[i], partial[i])
	}
	p.main.pointer("x", r.at(first.big))
	var n [narrowSums]int
	for i := range n {
		var a Pointer
		if i < len(p.list) {
			a, n[i] = r.at(p.list[i].small), p.list[i].n
		}
		p.main.pointer(narrowA[i], a)
	}
	p.main.int("m", m).int("k", first.width())
	for i, n := range n {
		p.main.int(vectorN[i], n)
	}
	parts, _ := first.parts(r.Dims)
	p.main.int("parts", parts)
}

// pairs adds the arguments of pairs of products.
func (p *narrowLaunch) pairs(r *Run, m int, partial *[2 * narrowSums]Pointer) {
	p.main.int("m", m)
	for s := range narrowSums {
		var x, h, b Pointer
		var k, n, parts int
		if 2*s < len(p.list) {
			left, right := &p.list[2*s], &p.list[2*s+1]
			x, h, b = r.at(left.big), r.at(left.small), r.at(right.small)
			k, n = left.width(), left.n
			parts, _ = left.parts(r.Dims)
		}
		p.main.pointer(narrowPartial[s], partial[2*s]).pointer(narrowRowsOf[s], partial[2*s+1]).pointer(narrowX[s], x).pointer(narrowH[s], h).pointer(narrowB[s], b)
		p.main.int(narrowK[s], k).int(vectorN[s], n).int(narrowPart[s], parts)
	}
}

// add fills in the kernel that adds up the parts.
func (p *narrowLaunch) add(r *Run, partial *[2 * narrowSums]Pointer) {
	most := 0
	for i := range p.list {
		_, size := p.list[i].parts(r.Dims)
		most = max(most, size)
	}
	p.sum.grid(blocks(most, 1024), len(p.list), 1)
	for i, from := range partial {
		var out, addend Pointer
		var parts, size int
		var alpha float32
		if i < len(p.list) {
			q := &p.list[i]
			out, alpha = r.at(q.t.out), q.t.list[0].alpha
			_, addend = q.t.edges(r)
			parts, size = q.parts(r.Dims)
		}
		p.sum.pointer(vectorOut[i], out).pointer(vectorAddend[i], addend).pointer(narrowPartial[i], from).long(narrowSize[i], size).int(narrowPart[i], parts).float(productAlpha[i], alpha)
	}
}
