package ir

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// MaxProducts is the largest number of products in one Gemm. The input gradient of a layer's q, k and v projections
// with their adapters needs six.
const MaxProducts = 8

// Product is a term alpha · op(A) · op(B) of a Gemm. op transposes A if TA is set, and B if TB is.
type Product struct {
	A, B   Value
	TA, TB bool
	Alpha  float32
}

// ProductAttr holds the attributes of a product in a Gemm: everything but its values.
type ProductAttr struct {
	TA, TB bool
	Alpha  float32
}

// GemmAttr describes the inputs of a Gemm: A and B of each product, then the bias, the addend, and the scales.
type GemmAttr struct {
	N       int
	P       [MaxProducts]ProductAttr
	HasBias bool
	HasC    bool
	// Float8 and Scaled have a bit for each product. Float8: B is in 8-bit floats. Scaled: so it is, and each of its rows
	// is multiplied by a scale of an f32 input [rows, 1], or each of its blocks by one of [⌈rows/Block.Rows⌉,
	// ⌈columns/Block.Columns⌉] if Block is not zero. Package graph/exec creates such products, for devices that support
	// them; models cast weights.
	Float8, Scaled uint8
	Block          DequantizeAttr
}

// Scales returns the shape of the scales of B.
func (a GemmAttr) Scales(b Shape) Shape {
	if a.Block == (DequantizeAttr{}) {
		return Shape{b[0], Static(1)}
	}
	return a.Block.Scales(b)
}

// Scale returns the index of the scales of product p among the inputs, or -1.
func (a GemmAttr) Scale(p int) int {
	if a.Scaled>>p&1 == 0 {
		return -1
	}
	return 2*a.N + boolIndex(a.HasBias) + boolIndex(a.HasC) + bits.OnesCount8(a.Scaled&(1<<p-1))
}

// Bias returns the index of the bias among the inputs, or -1.
func (a GemmAttr) Bias() int {
	if !a.HasBias {
		return -1
	}
	return 2 * a.N
}

// C returns the index of the addend among the inputs, or -1.
func (a GemmAttr) C() int {
	if !a.HasC {
		return -1
	}
	if a.HasBias {
		return 2*a.N + 1
	}
	return 2 * a.N
}

// gemmDoc describes Gemm. A sum of products is one matrix product with a longer K,
//
//	x Wᵀ + s·h Bᵀ = [x, s·h] [W, B]ᵀ,
//
// so a LoRA layer is a Gemm of two products, and so is its backward pass, dx = dy W + dh A. The adapter adds no pass
// over y or dx.
const gemmDoc = "C + bias + Σ alpha·op(A)·op(B), f32 out: [m,k]·[k,n], or [b,m,k]·[b,k,n] for one product"

var _ = define(Gemm, OpDef{Name: "Gemm", Doc: gemmDoc,
	Infer:     inferGemm,
	Gradient:  gemmGradient,
	Reference: gemmReference,
	Flops: func(attr any, in, outs []Type, dims []int) int {
		a, n := attr.(GemmAttr), outs[0].Shape.Elements(dims)
		flops := 0
		for p := range a.N {
			_, k := opShape(in[2*p].Shape, a.P[p].TA)
			flops += 2 * n * k.Resolve(dims)
		}
		return flops
	},
	InPlace: func(attr any, _ int) int { return attr.(GemmAttr).C() },
})

// opShape returns the last two axes of s, swapped if t.
func opShape(s Shape, t bool) (rows, cols Dim) {
	rows, cols = s[len(s)-2], s[len(s)-1]
	if t {
		return cols, rows
	}
	return rows, cols
}

func inferGemm(attr any, in []Type) ([]Type, error) {
	a := attr.(GemmAttr)
	if a.N < 1 || a.N > MaxProducts {
		return nil, fmt.Errorf("%d products, expected 1 to %d", a.N, MaxProducts)
	}
	if want := 2*a.N + boolIndex(a.HasBias) + boolIndex(a.HasC) + bits.OnesCount8(a.Scaled); len(in) != want {
		return nil, arity(want, in)
	}
	rank := in[0].Rank()
	if rank != 2 && (rank != 3 || a.N > 1) {
		return nil, fmt.Errorf("expected matrices, or one product of two batches of matrices")
	}
	var out Shape
	for p := range a.N {
		x, y := in[2*p], in[2*p+1]
		if x.Rank() != rank || y.Rank() != rank || !isFactor(x.DType) || rank > 2 && (y.DType.Quantized() || y.DType == tensor.F8E4M3) ||
			!(isWeight(y.DType) && a.Float8>>p&1 == 0 || y.DType == tensor.F8E4M3 && a.Float8>>p&1 == 1) {
			return nil, fmt.Errorf("product %d of %v and %v", p, x, y)
		}
		if i := a.Scale(p); i >= 0 && (a.Float8>>p&1 == 0 || !in[i].Equal(f32(a.Scales(y.Shape)))) {
			return nil, fmt.Errorf("product %d of %v with scales %v", p, y, in[i])
		}
		m, k := opShape(x.Shape, a.P[p].TA)
		k2, n := opShape(y.Shape, a.P[p].TB)
		if k != k2 {
			return nil, fmt.Errorf("product %d: inner sizes %v and %v differ (%v, %v)", p, k, k2, x, y)
		}
		s := Shape{m, n}
		if rank == 3 {
			if x.Shape[0] != y.Shape[0] {
				return nil, fmt.Errorf("batches of %v and %v", x.Shape[0], y.Shape[0])
			}
			s = Shape{x.Shape[0], m, n}
		}
		if p > 0 && !s.Equal(out) {
			return nil, fmt.Errorf("product %d is %v, the first %v", p, f32(s), f32(out))
		}
		out = s
	}
	if i := a.Bias(); i >= 0 && !in[i].Equal(f32(Shape{out[rank-1]})) {
		return nil, fmt.Errorf("bias %v, expected %v", in[i], f32(Shape{out[rank-1]}))
	}
	if i := a.C(); i >= 0 && !in[i].Equal(f32(out)) {
		return nil, fmt.Errorf("addend %v, expected %v", in[i], f32(out))
	}
	return []Type{f32(out)}, nil
}

func gemmGradient(b *Backward) {
	g, a, dy := b.G, b.Attr.(GemmAttr), b.Dy(0)
	for i := range a.N {
		p := a.P[i]
		x, y := 2*i, 2*i+1
		if b.Needs(x) {
			d := Product{A: dy, B: b.In(y), TB: !p.TB, Alpha: p.Alpha}
			if p.TA && b.InType(y).DType.Quantized() { // only the second factor can be quantized
				b.Acc(x, g.Transpose(g.Gemm([]Product{d}, 0, 0), 1, 0))
				continue // y has no gradient
			}
			if p.TA {
				d = Product{A: b.In(y), TA: p.TB, B: dy, TB: true, Alpha: p.Alpha}
			}
			b.Acc(x, g.Gemm([]Product{d}, 0, 0))
		}
		if b.Needs(y) {
			d := Product{A: b.In(x), TA: !p.TA, B: dy, Alpha: p.Alpha}
			if p.TB {
				d = Product{A: dy, TA: true, B: b.In(x), TB: p.TA, Alpha: p.Alpha}
			}
			b.Acc(y, g.Gemm([]Product{d}, 0, 0))
		}
	}
	if i := a.Bias(); i >= 0 && b.Needs(i) {
		b.Acc(i, g.SumTo(dy, b.InType(i).Shape))
	}
	if i := a.C(); i >= 0 && b.Needs(i) {
		b.Acc(i, dy)
	}
}

func gemmReference(attr any, in, outs []*Host) {
	a, o := attr.(GemmAttr), outs[0]
	rank := len(o.Shape)
	m, n := o.Shape[rank-2], o.Shape[rank-1]
	if i := a.C(); i >= 0 {
		copy(o.Data, in[i].Data)
	}
	if i := a.Bias(); i >= 0 {
		for j := range o.Data {
			o.Data[j] += in[i].Data[j%n]
		}
	}
	for p := range a.N {
		x, y, t := in[2*p], in[2*p+1], a.P[p]
		k := x.Shape[rank-1]
		if t.TA {
			k = x.Shape[rank-2]
		}
		xi, xk := strides2(m, k, t.TA)
		yk, yj := strides2(k, n, t.TB)
		for b := 0; b*m*n < len(o.Data); b++ {
			xd, yd, od := x.Data[b*m*k:], y.Data[b*k*n:], o.Data[b*m*n:]
			if i := a.Scale(p); i >= 0 {
				yd = slices.Clone(yd)
				block := a.Block
				if block == (DequantizeAttr{}) {
					block = DequantizeAttr{1, y.Shape[1]}
				}
				for j := range yd {
					yd[j] *= in[i].Data[block.Index(y.Shape[0], y.Shape[1], j)]
				}
			}
			for i := range m {
				for j := range n {
					sum := 0.0
					for l := range k {
						sum += xd[i*xi+l*xk] * yd[l*yk+j*yj]
					}
					od[i*n+j] += float64(t.Alpha) * sum
				}
			}
		}
	}
}

// strides2 returns the strides of the rows and columns of op(M) [rows, cols].
func strides2(rows, cols int, transposed bool) (int, int) {
	if transposed {
		return 1, rows
	}
	return cols, 1
}

// Gemm computes the sum of products, a bias along the last axis and an addend; bias and c may be zero.
func (g *Graph) Gemm(products []Product, bias, c Value) Value {
	if len(products) > MaxProducts {
		return g.Fail(fmt.Errorf("Gemm: %d products, at most %d", len(products), MaxProducts))
	}
	a := GemmAttr{N: len(products), HasBias: bias != 0, HasC: c != 0}
	var in []Value
	for i, p := range products {
		a.P[i] = ProductAttr{p.TA, p.TB, p.Alpha}
		in = append(in, p.A, p.B)
	}
	if bias != 0 {
		in = append(in, bias)
	}
	if c != 0 {
		in = append(in, c)
	}
	return g.Apply(Gemm, a, in...)
}

// Products returns the products of the Gemm v.
func (g *Graph) Products(v Value) []Product {
	n := g.Node(v)
	a := n.Attr.(GemmAttr)
	ps := make([]Product, a.N)
	for i := range ps {
		ps[i] = Product{n.In[2*i], n.In[2*i+1], a.P[i].TA, a.P[i].TB, a.P[i].Alpha}
	}
	return ps
}

// MatMul computes op(a)·op(b).
func (g *Graph) MatMul(a, b Value, ta, tb bool) Value {
	return g.Gemm([]Product{{a, b, ta, tb, 1}}, 0, 0)
}

// Linear computes x Wᵀ + bias for a weight [out, in], the layout of checkpoints; bias may be zero.
func (g *Graph) Linear(x, w, bias Value) Value {
	if bias != 0 {
		bias = g.Cast(bias, tensor.F32)
	}
	return g.Gemm([]Product{{x, w, false, true, 1}}, bias, 0)
}
