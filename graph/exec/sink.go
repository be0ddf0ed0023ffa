package exec

import (
	"github.com/lorafuse/lorafuse/internal/ir"
)

// sink moves the reshape after a product, which restores the leading axes of the rows, past the scales and sums that
// follow; it is a [rule]. Formulas on operands with leading axes then have the same canonical form as on matrices: x·Wᵀ
// + s·x·Aᵀ·Bᵀ is one product for x of any rank.
func sink(r *rewriter, _ ir.Value, n *ir.Node, in []ir.Value) []ir.Value {
	if n.Op != ir.Binary {
		return nil
	}
	fn := n.Attr.(ir.BinaryAttr).Fn
	if fn != ir.Mul && fn != ir.Add {
		return nil
	}
	g, shape := r.new, n.Outs[0].Shape
	for i := range 2 {
		rows, ok := unsplit(g, in[i])
		if !ok || !g.Type(in[i]).Equal(n.Outs[0]) {
			continue
		}
		flat, other := g.Type(rows).Shape, in[1-i]
		switch t := g.Type(other); {
		case fn == ir.Mul:
			if _, number := constant(g, other); !number || t.Rank() > 0 {
				continue
			}
		case t.Equal(n.Outs[0]):
			other = g.Reshape(other, flat)
		case !t.Shape.Equal(ir.Shape{flat[1]}):
			continue
		}
		pair := [2]ir.Value{rows, other}
		if i == 1 {
			pair = [2]ir.Value{other, rows}
		}
		return []ir.Value{g.Reshape(g.Binary(fn, pair[0], pair[1]), shape)}
	}
	return nil
}

// unsplit returns the matrix under v if v is a product with its rows reshaped to leading axes.
func unsplit(g *ir.Graph, v ir.Value) (ir.Value, bool) {
	n := g.Node(v)
	if n.Op != ir.Reshape || n.Type().Rank() == 2 {
		return 0, false
	}
	t := g.Type(n.In[0])
	return n.In[0], t.Rank() == 2 && t.Last() == n.Type().Last() && ofProduct(g, n.In[0], ir.MaxProducts)
}

// ofProduct reports whether v is a product, or a sum with a product among its terms, at most below levels deep. A Gemm
// cannot hold more terms.
func ofProduct(g *ir.Graph, v ir.Value, below int) bool {
	n := g.Node(v)
	if n.Op == ir.Gemm {
		return true
	}
	return n.Op == ir.Binary && below > 0 && (ofProduct(g, n.In[0], below-1) || ofProduct(g, n.In[1], below-1))
}
