package exec

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// narrow returns the rule that replaces factors of products which are cast from 8-bit floats, and perhaps scaled by row
// or by block, by the 8-bit floats, if the device supports such products. Scales of a product's factors are all of rows
// or of blocks of one size: those that differ from the first stay.
func narrow(supports Supports) rule {
	return func(r *rewriter, _ ir.Value, n *ir.Node, in []ir.Value) []ir.Value {
		if n.Op != ir.Gemm {
			return nil
		}
		a, ins := n.Attr.(ir.GemmAttr), slices.Clone(in)
		for p := range a.N {
			w, scale, block := float8(r.new, in[2*p+1])
			if w == 0 || scale != 0 && a.Scaled != 0 && block != a.Block {
				continue
			}
			ins[2*p+1], a.Float8 = w, a.Float8|1<<p
			if scale != 0 {
				ins, a.Scaled, a.Block = append(ins, scale), a.Scaled|1<<p, block
			}
		}
		if a.Float8 == 0 {
			return nil
		}
		types := make([]ir.Type, len(ins))
		for i, x := range ins {
			types[i] = r.new.Type(x)
		}
		if !supports(ir.Gemm, a, types) {
			return nil
		}
		return []ir.Value{r.new.Apply(ir.Gemm, a, ins...)}
	}
}

// float8 returns the matrix of 8-bit floats from which v is computed, and its scales. If v is no such matrix, w is zero;
// if it is not scaled, scale is; if its scales are those of rows, block is.
func float8(g *ir.Graph, v ir.Value) (w, scale ir.Value, block ir.DequantizeAttr) {
	n, t := g.Node(v), g.Type(v)
	if t.Rank() != 2 || t.DType != tensor.F32 {
		return 0, 0, block
	}
	switch n.Op {
	case ir.Cast:
		if g.Type(n.In[0]).DType == tensor.F8E4M3 {
			return n.In[0], 0, block
		}
	case ir.Dequantize:
		return n.In[0], n.In[1], n.Attr.(ir.DequantizeAttr)
	case ir.Binary:
		if n.Attr.(ir.BinaryAttr).Fn != ir.Mul {
			break
		}
		rows := ir.Type{DType: tensor.F32, Shape: ir.Shape{t.Shape[0], ir.Static(1)}}
		for i := range 2 {
			x, scale := n.In[i], n.In[1-i]
			if p := g.Node(x); p.Op == ir.Cast && g.Type(p.In[0]).DType == tensor.F8E4M3 && g.Type(x).Equal(t) && g.Type(scale).Equal(rows) {
				return p.In[0], scale, block
			}
		}
	}
	return 0, 0, block
}
