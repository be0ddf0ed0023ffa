package gpu

import (
	"math/bits"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches compute sums of products. The kernels of kernels/cuda/gemm_f32.cu need one launch per product, each
// after the first adding to the output. A further launch adds up the parts of a product with few tiles.

var (
	// The kernels' codes for the type of A, and for matrices that are selected by row.
	firstFactors = map[tensor.DType]int{tensor.F32: 0, tensor.F16: 1, tensor.BF16: 2}
	// The types of B. Scales are for 8-bit floats.
	secondFactors = map[tensor.DType]bool{tensor.F32: true, tensor.F16: true, tensor.BF16: true, tensor.Q8: true, tensor.NF4: true, tensor.FP4: true, tensor.F8E4M3: true}
)

// mostScales is the number of scaled factors of a launch.
const mostScales = 3

// The sides of blocks that have a scale are powers of two and not smaller.
const leastBlockRows, leastBlockColumns = 4, 8

// takesGemm limits the number of scaled factors, and the blocks of their scales.
func takesGemm(attr any, _ []ir.Type) bool {
	a := attr.(ir.GemmAttr)
	powerOfTwo := func(n int) bool { return n&(n-1) == 0 }
	return bits.OnesCount8(a.Scaled) <= mostScales && (a.Block == ir.DequantizeAttr{} ||
		a.Block.Rows >= leastBlockRows && a.Block.Columns >= leastBlockColumns && powerOfTwo(a.Block.Rows) && powerOfTwo(a.Block.Columns))
}

// storedWidth is the smallest width of the rows of a result that is stored as bfloat16. Narrower results, such as an
// adapter's h, are small, and each is a sum of many terms.
const storedWidth = 65

// storesGemm reports whether the kernels read or write an operand as bfloat16: all matrices and, of a single sum of
// products, the addend and a result of long rows.
func storesGemm(attr any, in []ir.Type, at ir.Place) bool {
	a, y := attr.(ir.GemmAttr), in[1].Shape
	if !at.Out && at.Index < 2*a.N {
		return in[at.Index].DType == tensor.F32
	}
	if len(y) != 2 || !isChained(a) {
		return false
	}
	width := y[1]
	if a.P[0].TB {
		width = y[0]
	}
	return !at.Out && at.Index == a.C() || at.Out && width.Var == 0 && width.N >= storedWidth
}

// product computes a sum of products in one of several ways.
type product interface {
	fill(r *Run)
	skip()
}

// prepareGemm selects the kernels for a sum of products: gemv.cu for few rows, gemm_thin.cu for the rows of a batch of
// decoding, gemm_bf16.cu for many, otherwise gemm_mma.cu, or gemm_f32.cu if operands must not be rounded. If the number
// of rows is known only at run time, it selects several. Before these, gemm_narrow.cu computes the products of adapters.
func prepareGemm(c *compiler, l *ir.Launch) (step, error) {
	for p := range l.Attr.(ir.GemmAttr).N {
		x, y := l.In[2*p].Stored(), l.In[2*p+1].Stored()
		if _, ok := firstFactors[x]; !ok || !secondFactors[y] {
			return nil, unsupported("a product of %v and %v", x, y)
		}
	}
	t := termsOf(l)
	together, begins := c.narrows[c.launch], false
	if together == nil {
		var err error
		if together, err = newNarrow(c, l); err != nil {
			return nil, err
		}
		begins = together != nil
	}
	least, most := t.rows(c.dims)
	// A launch before this one may compute its few rows too.
	joined := c.joined[c.launch]
	var own *vector
	var many product
	var err error
	if joined == nil && t.dots() && (least <= c.target.VectorRows || least <= c.target.ThinRows && c.isThin(&t)) {
		if own, err = newVector(c, l); err != nil {
			return nil, err
		}
		joined = own
	}
	switch {
	case joined != nil && most <= c.target.VectorRows:
	case c.steps[c.launch].behind > 0: // a launch before this one computes its many rows
	case t.chained && t.bulks(&c.target):
		many, err = newBulk(c, t)
	case t.chained && (c.target.Precision == backend.BF16 || c.target.ExactSums):
		many, err = newTiles(c, l, t)
	case c.target.ExactSums:
		many, err = newSeparate(c, t)
	default:
		many, err = newExact(c, l)
	}
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		isNarrow := together != nil && together.takes(r)
		few := !isNarrow && joined != nil && joined.takes(r)
		switch {
		case !begins:
		case isNarrow:
			together.fill(r)
		default:
			together.skip()
		}
		switch {
		case own == nil:
		case few:
			own.fill(r)
		default:
			own.skip()
		}
		switch {
		case many == nil:
		case isNarrow || few:
			many.skip()
		default:
			many.fill(r)
		}
	}, nil
}

// exact is products by gemm_f32.cu.
type exact struct {
	l    *ir.Launch
	list []exactProduct
}

// exactProduct holds the kernels of a product: one for the whole, or one for its parts and one for their sum. The
// latter are nil if the product is never split.
type exactProduct struct{ whole, parts, sum *Kernel }

func (k *exactProduct) skip() {
	k.whole.skip()
	if k.parts != nil {
		k.parts.skip()
		k.sum.skip()
	}
}

func newExact(c *compiler, l *ir.Launch) (product, error) {
	a := l.Attr.(ir.GemmAttr)
	if t := termsOf(l); t.stored() != 0 {
		return nil, unsupported("a sum of exact products that is stored as bfloat16")
	}
	e := &exact{l: l, list: make([]exactProduct, a.N)}
	for p := range e.list {
		y, k := l.In[2*p+1].Stored(), &e.list[p]
		var err error
		if k.whole, err = c.kernel("gemm_f32", "gemm_f32_"+suffix(y), 256); err != nil {
			return nil, err
		}
		s := e.sizes(p, c.dims)
		bytes := partial(s.m*s.n*s.batch, blocks(s.k, stageK))
		if bytes == 0 {
			continue
		}
		if k.parts, err = c.kernel("gemm_f32", "gemm_f32_parts_"+suffix(y), 256); err != nil {
			return nil, err
		}
		if k.sum, err = c.kernel("gemm_mma", "gemm_sum", 256); err != nil {
			return nil, err
		}
		c.reserve(bytes)
	}
	return e, nil
}

// exactSizes holds the sizes of a product.
type exactSizes struct{ m, n, k, batch int }

func (e *exact) sizes(p int, dims []int) (s exactSizes) {
	x, out := e.l.In[2*p].Type.Shape, e.l.Out[0].Type.Shape
	rank := len(out)
	s = exactSizes{m: out[rank-2].Resolve(dims), n: out[rank-1].Resolve(dims), k: x[rank-1].Resolve(dims), batch: 1}
	if e.l.Attr.(ir.GemmAttr).P[p].TA {
		s.k = x[rank-2].Resolve(dims)
	}
	if rank == 3 {
		s.batch = out[0].Resolve(dims)
	}
	return s
}

func (e *exact) fill(r *Run) {
	a := e.l.Attr.(ir.GemmAttr)
	for p := range e.list {
		k, x, y, out, t, s := &e.list[p], e.l.In[2*p], e.l.In[2*p+1], e.l.Out[0], a.P[p], e.sizes(p, r.Dims)
		var bias, addend, scale Pointer
		if i := a.Scale(p); i >= 0 {
			scale = r.at(e.l.In[i])
		}
		switch {
		case p > 0:
			addend = r.at(out)
		case a.HasC:
			addend = r.at(e.l.In[a.C()])
		}
		if p == 0 && a.HasBias {
			bias = r.at(e.l.In[a.Bias()])
		}
		k.skip()
		down, across, parts := blocks(s.m, smallTile), blocks(s.n, smallTile), 1
		if k.parts != nil {
			parts = partsOf(down*across*s.batch, blocks(s.k, stageK))
		}
		main := k.whole
		if parts > 1 {
			main = k.parts
			main.grid(down*parts, across, s.batch).pointer("partial", r.Scratch).pointer("a", r.at(x)).pointer("b", r.at(y))
			sumParts(k.sum, r, out, s.m*s.n, s.n, s.batch, parts, 0).pointer("bias", bias).pointer("addend", addend)
		} else {
			main.grid(down, across, min(s.batch, maxGrid)).pointer("out", r.at(out)).pointer("a", r.at(x)).pointer("b", r.at(y)).pointer("bias", bias).pointer("addend", addend)
		}
		main.int("m", s.m).int("n", s.n).int("k", s.k).int("kind", firstFactors[x.Stored()]).int("ta", bit(t.TA)).int("tb", bit(t.TB)).long("step_a", s.m*s.k).long("step_b", s.k*s.n).int("batch", s.batch)
		if parts > 1 {
			main.int("parts", parts)
		}
		main.float("alpha", t.Alpha)
		if y.Stored() == tensor.F8E4M3 {
			main.pointer("scale", scale).int("flags", blockFlags(a.Block))
		}
	}
}

func (e *exact) skip() {
	for p := range e.list {
		e.list[p].skip()
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
