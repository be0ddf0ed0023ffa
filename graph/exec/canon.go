package exec

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// canonical returns the rule that converts a graph to its normal form. It folds constants, moves transposes into the
// flags of a Gemm and, unless sums are kept, scales into its alpha and addends into its products, C or bias, and shortens
// chains of reshapes. If sums are kept, products with quantized weights are computed first.
func canonical(keepSums bool) rule {
	return func(r *rewriter, v ir.Value, n *ir.Node, in []ir.Value) []ir.Value {
		switch n.Op {
		case ir.Binary:
			switch n.Attr.(ir.BinaryAttr).Fn {
			case ir.Mul:
				return foldMul(r, n, in, keepSums)
			case ir.Add:
				return foldAdd(r, n, in, keepSums)
			}
		case ir.Gemm:
			if out := splitQuantized(r, n, in, keepSums); out != nil {
				return out
			}
			return foldTransposes(r, n, in)
		}
		return shorten(r, n, in)
	}
}

// shorten removes operations that change nothing.
func shorten(r *rewriter, n *ir.Node, in []ir.Value) []ir.Value {
	switch n.Op {
	case ir.Reshape:
		x := in[0]
		if p := r.new.Node(x); p.Op == ir.Reshape {
			x = p.In[0]
		}
		if r.new.Type(x).Equal(n.Outs[0]) {
			return []ir.Value{x}
		}
		if x != in[0] {
			return []ir.Value{r.emit(n, []ir.Value{x})}
		}
	case ir.Cast, ir.Broadcast:
		if r.new.Type(in[0]).Equal(n.Outs[0]) {
			return []ir.Value{in[0]}
		}
	}
	return nil
}

// splitQuantized splits a Gemm with quantized and other weights in two; the second adds to the first. A RowsGemm, which
// serves rows of several adapters, adds them in the same order, so a row has the same bits alone and in a batch.
// Kernels for quantized weights would sum the products of an adapter in another order.
func splitQuantized(r *rewriter, n *ir.Node, in []ir.Value, keepSums bool) []ir.Value {
	a := n.Attr.(ir.GemmAttr)
	if !keepSums || a.N < 2 {
		return nil
	}
	var first, second []ir.Product
	for i, p := range a.P[:a.N] {
		product := ir.Product{A: in[2*i], B: in[2*i+1], TA: p.TA, TB: p.TB, Alpha: p.Alpha}
		if r.new.Type(product.B).DType.Quantized() {
			first = append(first, product)
		} else {
			second = append(second, product)
		}
	}
	if len(first) == 0 || len(second) == 0 {
		return nil
	}
	var bias, c ir.Value
	if i := a.Bias(); i >= 0 {
		bias = in[i]
	}
	if i := a.C(); i >= 0 {
		c = in[i]
	}
	return []ir.Value{r.new.Gemm(second, 0, r.new.Gemm(first, bias, c))}
}

// constant returns the number that v is filled with.
func constant(g *ir.Graph, v ir.Value) (float64, bool) {
	switch n := g.Node(v); n.Op {
	case ir.Const:
		return n.Attr.(ir.ConstAttr).Value, true
	case ir.Reshape, ir.Broadcast:
		return constant(g, n.In[0])
	}
	return 0, false
}

func foldMul(r *rewriter, n *ir.Node, in []ir.Value, keepSums bool) []ir.Value {
	g := r.new
	for i := range 2 {
		c, ok := constant(g, in[i])
		x := in[1-i]
		if !ok || !g.Type(x).Equal(n.Outs[0]) {
			continue
		}
		if d, ok := constant(g, x); ok {
			return []ir.Value{g.Const(c*d, n.Outs[0])}
		}
		if c == 1 {
			return []ir.Value{x}
		}
		p := g.Node(x)
		if p.Op == ir.Gemm && r.single(n.In[1-i]) && !keepSums {
			a := p.Attr.(ir.GemmAttr)
			if !a.HasBias && !a.HasC {
				for j := range a.N {
					a.P[j].Alpha *= float32(c)
				}
				return []ir.Value{g.Apply(ir.Gemm, a, slices.Clone(p.In)...)}
			}
		}
	}
	return nil
}

func foldAdd(r *rewriter, n *ir.Node, in []ir.Value, keepSums bool) []ir.Value {
	g := r.new
	for i := range 2 {
		if c, ok := constant(g, in[i]); ok && c == 0 && g.Type(in[1-i]).Equal(n.Outs[0]) {
			return []ir.Value{in[1-i]}
		}
	}
	if keepSums {
		return nil
	}
	if out := joinGemms(r, n, in); out != nil {
		return out
	}
	// A Gemm with no other reader absorbs the other operand as its addend or bias. The later Gemm is chosen, because
	// its inputs are alive anyway.
	for _, i := range []int{1, 0} {
		p := g.Node(in[i])
		if p.Op != ir.Gemm || !r.single(n.In[i]) || !p.Type().Equal(n.Outs[0]) {
			continue
		}
		a, x := p.Attr.(ir.GemmAttr), in[1-i]
		switch t := g.Type(x); {
		case !a.HasC && t.Equal(n.Outs[0]):
			a.HasC = true
			return []ir.Value{g.Apply(ir.Gemm, a, append(slices.Clone(p.In), x)...)}
		case !a.HasBias && !a.HasC && t.Equal(ir.Type{DType: t.DType, Shape: ir.Shape{n.Outs[0].Last()}}):
			a.HasBias = true
			return []ir.Value{g.Apply(ir.Gemm, a, append(slices.Clone(p.In), x)...)}
		}
	}
	return foldRows(r, n, in)
}

// foldRows makes the other operand of a sum the addend of a RowsGemm without other readers. An example is the gradient
// of x by the adapters of q, k and v.
func foldRows(r *rewriter, n *ir.Node, in []ir.Value) []ir.Value {
	g := r.new
	for _, i := range []int{1, 0} {
		p := g.Node(in[i])
		if p.Op != ir.RowsGemm || !r.single(n.In[i]) || !p.Type().Equal(n.Outs[0]) || !g.Type(in[1-i]).Equal(n.Outs[0]) {
			continue
		}
		if a := p.Attr.(ir.RowsGemmAttr); !a.HasC {
			a.HasC = true
			return []ir.Value{g.Apply(ir.RowsGemm, a, append(slices.Clone(p.In), in[1-i])...)}
		}
	}
	return nil
}

// joinGemms merges the sum of two Gemms into one with a longer K.
func joinGemms(r *rewriter, n *ir.Node, in []ir.Value) []ir.Value {
	g := r.new
	p, q := g.Node(in[0]), g.Node(in[1])
	if p.Op != ir.Gemm || q.Op != ir.Gemm || in[0] == in[1] || !r.single(n.In[0]) || !r.single(n.In[1]) ||
		len(n.Outs[0].Shape) != 2 || !p.Type().Equal(q.Type()) {
		return nil
	}
	a, b := p.Attr.(ir.GemmAttr), q.Attr.(ir.GemmAttr)
	if a.N+b.N > ir.MaxProducts || a.HasBias && b.HasBias || a.HasC && b.HasC {
		return nil
	}
	join := a
	join.N = a.N + b.N
	copy(join.P[a.N:], b.P[:b.N])
	join.HasBias, join.HasC = a.HasBias || b.HasBias, a.HasC || b.HasC
	ins := slices.Concat(p.In[:2*a.N], q.In[:2*b.N])
	for _, side := range []struct {
		n *ir.Node
		i int
	}{{p, a.Bias()}, {q, b.Bias()}, {p, a.C()}, {q, b.C()}} {
		if side.i >= 0 {
			ins = append(ins, side.n.In[side.i])
		}
	}
	return []ir.Value{g.Apply(ir.Gemm, join, ins...)}
}

// foldTransposes turns transposed operands of a Gemm into flags.
func foldTransposes(r *rewriter, n *ir.Node, in []ir.Value) []ir.Value {
	a, ins, changed := n.Attr.(ir.GemmAttr), slices.Clone(in), false
	for i := range 2 * a.N {
		p := r.new.Node(ins[i])
		if p.Op != ir.Transpose || !swapsLast(p.Attr.(ir.PermAttr).Perm()) {
			continue
		}
		ins[i], changed = p.In[0], true
		if i%2 == 0 {
			a.P[i/2].TA = !a.P[i/2].TA
		} else {
			a.P[i/2].TB = !a.P[i/2].TB
		}
	}
	if !changed {
		return nil
	}
	return []ir.Value{r.new.Apply(ir.Gemm, a, ins...)}
}

func swapsLast(perm []int) bool {
	return slices.Equal(perm, []int{1, 0}) || slices.Equal(perm, []int{0, 2, 1})
}
