package gpu

import (
	"math"
	"math/bits"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// How kernels are told of an operand of a product: kernels/cuda/operand.cuh and
// products.cuh.
const (
	wayAny  = iota // element by element, at any address
	wayCopy        // copies bfloat16 unchanged
	wayWide        // by wide loads

	kindShift  = 2
	alongK     = 1 << 5
	flagsShift = 8 // of the second operand
	scaleShift = 6 // of the number of the scales, from 1 on
	// Two exponents of two follow for the blocks that have a scale: the number of rows, and wholeRow less the number of
	// columns.
	blockRowsShift, blockColumnsShift, wholeRow = 8, 13, 31
)

var operandKinds = map[tensor.DType]int{tensor.F32: 0, tensor.F16: 1, tensor.BF16: 2, tensor.Q8: 3, tensor.NF4: 4, tensor.FP4: 5, tensor.F8E4M3: 6}

// operandFlags returns the flags of an operand at an address with rows of the given length in memory; k reports
// whether the rows run along the k axis.
func operandFlags(at Pointer, d tensor.DType, row int, k bool) int {
	way, address := wayAny, uint64(at)
	switch {
	case d == tensor.BF16 && address%16 == 0 && row%8 == 0:
		way = wayCopy
	case d == tensor.F16 && address%16 == 0 && row%8 == 0, d == tensor.F32 && address%16 == 0 && row%4 == 0,
		d.Quantized() && address%4 == 0 && row%tensor.QuantBlock == 0, d == tensor.F8E4M3 && address%16 == 0 && row%16 == 0:
		way = wayWide
	}
	f := way | operandKinds[d]<<kindShift
	if k {
		f |= alongK
	}
	return f
}

// terms is a sum of products for kernels that compute all of them at once.
type terms struct {
	out, bias, addend ir.Ref
	hasBias, hasC     bool
	chained           bool   // isChained
	list              []term // without terms of factor zero, which are not read
}

type term struct {
	a, b   ir.Ref
	scale  ir.Ref // of the rows or blocks of b, if there are scales
	scaled bool
	block  ir.DequantizeAttr // zero for scales of rows
	ta, tb bool
	alpha  float32
}

func termsOf(l *ir.Launch) terms {
	a := l.Attr.(ir.GemmAttr)
	t := terms{out: l.Out[0], hasBias: a.HasBias, hasC: a.HasC, chained: isChained(a)}
	for i := range a.N {
		if p := a.P[i]; p.Alpha != 0 {
			e := term{a: l.In[2*i], b: l.In[2*i+1], ta: p.TA, tb: p.TB, alpha: p.Alpha}
			if j := a.Scale(i); j >= 0 {
				e.scale, e.scaled, e.block = l.In[j], true, a.Block
			}
			t.list = append(t.list, e)
		}
	}
	if a.HasBias {
		t.bias = l.In[a.Bias()]
	}
	if a.HasC {
		t.addend = l.In[a.C()]
	}
	return t
}

// sizes returns the sizes of the output.
func (t *terms) sizes(dims []int) (m, n, batch int) {
	s := t.out.Type.Shape
	rank := len(s)
	m, n, batch = s[rank-2].Resolve(dims), s[rank-1].Resolve(dims), 1
	if rank == 3 {
		batch = s[0].Resolve(dims)
	}
	return m, n, batch
}

// rows returns the smallest and the largest number of output rows in any run.
func (t *terms) rows(dims []int) (least, most int) {
	most, _, _ = t.sizes(dims)
	if s := t.out.Type.Shape; s[len(s)-2].Var != 0 {
		return 0, most
	}
	return most, most
}

// k returns the length of the k axis.
func (t *term) k(dims []int) int {
	s := t.a.Type.Shape
	if t.ta {
		return s[len(s)-2].Resolve(dims)
	}
	return s[len(s)-1].Resolve(dims)
}

// dots reports whether all products multiply rows by rows, without a batch.
func (t *terms) dots() bool {
	for i := range t.list {
		if t.list[i].ta || !t.list[i].tb {
			return false
		}
	}
	return t.out.Type.Rank() == 2
}

// isChained reports whether sums can be multiplied by the ratios of successive factors other than zero. Kernels that
// accumulate all products in one sum need this.
func isChained(a ir.GemmAttr) bool {
	const most = 1 << 60
	last := 0.0
	for i := range a.N {
		alpha := math.Abs(float64(a.P[i].Alpha))
		if alpha == 0 {
			continue
		}
		if r := last / alpha; last != 0 && !(r <= most && r >= 1.0/most) {
			return false
		}
		last = alpha
	}
	return true
}

// add appends the parameters LF_PRODUCTS of a kernel, after the number of products.
func (t *terms) add(r *Run, k *Kernel) {
	stepA, stepB := 0, 0
	if m, n, _ := t.sizes(r.Dims); t.out.Type.Rank() == 3 && len(t.list) > 0 { // there is one product
		p := &t.list[0]
		stepA, stepB = m*p.k(r.Dims)*p.a.Stored().Size(), n*p.k(r.Dims)*p.b.Stored().Size()
	}
	k.int("count", t.count(r)).long("step_a", stepA).long("step_b", stepB)
	var s scales
	k.products(t.products(r, k, 0, &s)).scales(&s)
}

// scales are the addresses of the scales of a launch's factors.
type scales struct {
	at    [mostScales]Pointer
	count int
}

// add returns the number of the scales of a product, 0 if it has none.
func (s *scales) add(r *Run, p *term) int {
	if !p.scaled {
		return 0
	}
	s.at[s.count] = r.at(p.scale)
	s.count++
	return s.count
}

// blockFlags returns the part of the flags of an operand that describes the blocks of its scales.
func blockFlags(b ir.DequantizeAttr) int {
	if b == (ir.DequantizeAttr{}) {
		return 0
	}
	return bits.TrailingZeros(uint(b.Rows))<<blockRowsShift | (wholeRow-bits.TrailingZeros(uint(b.Columns)))<<blockColumnsShift
}

// block returns the blocks that have a scale in weights of the products in 8-bit floats; zero if there are none.
func (t *terms) block() (b ir.DequantizeAttr) {
	for i := range t.list {
		if t.list[i].scaled {
			b = t.list[i].block
		}
	}
	return b
}

// scaledTerms returns how many products have scales.
func (t *terms) scaledTerms() (n int) {
	for i := range t.list {
		n += bit(t.list[i].scaled)
	}
	return n
}

// count returns the number of products that are not empty.
func (t *terms) count(r *Run) (n int) {
	for i := range t.list {
		if t.list[i].k(r.Dims) > 0 {
			n++
		}
	}
	return n
}

// products adds the arguments of products from number at on, and returns the number of the next.
func (t *terms) products(r *Run, k *Kernel, at int, s *scales) int {
	m, n, _ := t.sizes(r.Dims)
	for i := range t.list {
		p := &t.list[i]
		size := p.k(r.Dims)
		if size == 0 {
			continue
		}
		rowA, rowB := size, n
		if p.ta {
			rowA = m
		}
		if p.tb {
			rowB = size
		}
		a, b := r.at(p.a), r.at(p.b)
		flags := operandFlags(a, p.a.Stored(), rowA, !p.ta) | (operandFlags(b, p.b.Stored(), rowB, p.tb)|s.add(r, p)<<scaleShift|blockFlags(p.block))<<flagsShift
		k.product(at, a, b, size, flags, p.alpha)
		at++
	}
	return at
}

// The parameters of products are numbered.
var productA, productB, productK, productFlags, productAlpha, productScale = numbered("a"), numbered("b"), numbered("k"), numbered("flags"), numbered("alpha"), numbered("scale")

// product adds the arguments of product i.
func (k *Kernel) product(i int, a, b Pointer, size, flags int, alpha float32) {
	k.pointer(productA[i], a).pointer(productB[i], b).int(productK[i], size).int(productFlags[i], flags).float(productAlpha[i], alpha)
}

// products adds the arguments of products that do not exist, from number at on.
func (k *Kernel) products(at int) *Kernel {
	for ; at < ir.MaxProducts; at++ {
		k.product(at, 0, 0, 0, 0, 0)
	}
	return k
}

// scales adds the addresses of scales.
func (k *Kernel) scales(s *scales) {
	for i, p := range s.at {
		k.pointer(productScale[i], p)
	}
}

// stored returns the result of narrow for the output and the addend.
func (t *terms) stored() int {
	if t.hasC {
		return narrow(t.out, t.addend)
	}
	return narrow(t.out)
}

// edges returns the addresses of bias and addend; 0 means absent.
func (t *terms) edges(r *Run) (bias, addend Pointer) {
	if t.hasBias {
		bias = r.at(t.bias)
	}
	if t.hasC {
		addend = r.at(t.addend)
	}
	return bias, addend
}
