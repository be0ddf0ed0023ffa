package exec

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// fused replaces patterns of primitives by composites; it is a [rule]. A pattern matches only if its inner values have no
// other reader. In training graphs the backward pass reads them, so layers should use composites directly.
func fused(r *rewriter, v ir.Value, n *ir.Node, in []ir.Value) []ir.Value {
	if n.Op != ir.Binary {
		return nil
	}
	m := &matcher{r: r}
	switch n.Attr.(ir.BinaryAttr).Fn {
	case ir.Mul:
		if out := m.rmsNorm(n); out != 0 {
			return []ir.Value{out}
		}
		if out := m.swiGLU(n); out != 0 {
			return []ir.Value{out}
		}
	case ir.Div:
		if out := m.softmax(n); out != 0 {
			return []ir.Value{out}
		}
	}
	return nil
}

// matcher matches nodes of the old graph.
type matcher struct{ r *rewriter }

func (m *matcher) node(v ir.Value) *ir.Node { return m.r.old.Node(v) }

// inner returns the node of v if it is op with attr and has one reader.
func (m *matcher) inner(v ir.Value, op ir.Op, attr any) *ir.Node {
	if n := m.node(v); n.Op == op && n.Attr == attr && m.r.single(v) {
		return n
	}
	return nil
}

func (m *matcher) binary(v ir.Value, fn ir.BinaryFn) *ir.Node {
	return m.inner(v, ir.Binary, ir.BinaryAttr{Fn: fn})
}

func (m *matcher) unary(v ir.Value, fn ir.UnaryFn) *ir.Node {
	return m.inner(v, ir.Unary, ir.UnaryAttr{Fn: fn})
}

// keptReduce returns x if v is Reshape(Reduce(fn, x, last)) with the last axis kept.
func (m *matcher) keptReduce(v ir.Value, fn ir.ReduceFn) ir.Value {
	n := m.node(v)
	if n.Op != ir.Reshape || !m.r.single(v) {
		return 0
	}
	red := m.node(n.In[0])
	if red.Op != ir.Reduce || !m.r.single(n.In[0]) {
		return 0
	}
	x := red.In[0]
	rank := m.r.old.Type(x).Rank()
	if red.Attr != (ir.ReduceAttr{Fn: fn, Axis: rank - 1}) {
		return 0
	}
	kept := slices.Clone(m.r.old.Type(x).Shape)
	if kept[rank-1] = ir.Static(1); !n.Outs[0].Shape.Equal(kept) {
		return 0
	}
	return x
}

// withConst splits fn(x, c) into x and the number c.
func (m *matcher) withConst(v ir.Value, fn ir.BinaryFn) (ir.Value, float64, bool) {
	if n := m.binary(v, fn); n != nil {
		for i := range 2 {
			if c, ok := constant(m.r.old, n.In[i]); ok {
				return n.In[1-i], c, true
			}
		}
	}
	return 0, 0, false
}

// rmsNorm matches (x · rsqrt(Σx²/d + eps)) · w.
func (m *matcher) rmsNorm(n *ir.Node) ir.Value {
	for i := range 2 {
		w := n.In[1-i]
		scaled := m.binary(n.In[i], ir.Mul)
		if scaled == nil || m.r.old.Type(w).Rank() != 1 {
			continue
		}
		for j := range 2 {
			x := scaled.In[j]
			root := m.unary(scaled.In[1-j], ir.Rsqrt)
			if root == nil || !m.r.old.Type(x).Equal(n.Outs[0]) {
				continue
			}
			mean, eps, ok := m.withConst(root.In[0], ir.Add)
			if !ok {
				continue
			}
			sum, c, ok := m.withConst(mean, ir.Mul)
			d := m.r.old.Type(x).Last().N
			if !ok || float32(c) != 1/float32(d) {
				continue
			}
			square := m.keptReduce(sum, ir.ReduceSum)
			if square == 0 {
				continue
			}
			if sq := m.binary(square, ir.Mul); sq != nil && sq.In[0] == x && sq.In[1] == x {
				return m.r.new.RMSNorm(m.r.vals[x], m.r.vals[w], float32(eps))
			}
		}
	}
	return 0
}

// swiGLU matches (gate · sigmoid(gate)) · up.
func (m *matcher) swiGLU(n *ir.Node) ir.Value {
	for i := range 2 {
		act, up := m.binary(n.In[i], ir.Mul), n.In[1-i]
		if act == nil {
			continue
		}
		for j := range 2 {
			gate := act.In[j]
			if s := m.unary(act.In[1-j], ir.Sigmoid); s != nil && s.In[0] == gate && m.r.old.Type(gate).Equal(m.r.old.Type(up)) {
				return m.r.new.GLU(m.r.vals[gate], m.r.vals[up], ir.SiLU)
			}
		}
	}
	return 0
}

// softmax matches e / Σe with e = exp(x − max x).
func (m *matcher) softmax(n *ir.Node) ir.Value {
	e := n.In[0]
	exp := m.node(e)
	if exp.Op != ir.Unary || exp.Attr != (ir.UnaryAttr{Fn: ir.Exp}) || m.r.uses[e] != 2 || m.keptReduce(n.In[1], ir.ReduceSum) != e {
		return 0
	}
	diff := m.binary(exp.In[0], ir.Sub)
	if diff == nil || m.keptReduce(diff.In[1], ir.ReduceMax) != diff.In[0] {
		return 0
	}
	return m.r.new.Softmax(m.r.vals[diff.In[0]])
}

// mergeLoss computes a loss in the pass that computes its gradient. If a LinearCrossEntropyGrad has the inputs of a
// LinearCrossEntropy, the logits are computed once.
func mergeLoss(g *ir.Graph, roots []ir.Value) (*ir.Graph, []ir.Value, error) {
	type loss struct {
		attr any
		in   [3]ir.Value
	}
	grads := map[loss]ir.Value{}
	for v := ir.Value(1); int(v) < len(g.Nodes); v++ {
		if n := g.Node(v); n.Op == ir.LinearCrossEntropyGrad {
			// A factor that depends on a loss would wait for itself.
			if !slices.ContainsFunc(ancestors(g, n.In[3]), func(op ir.Op) bool { return op == ir.LinearCrossEntropy }) {
				grads[loss{n.Attr, [3]ir.Value(n.In[:3])}] = v
			}
		}
	}
	return rewrite(g, roots, func(r *rewriter, v ir.Value, n *ir.Node, in []ir.Value) []ir.Value {
		if n.Op != ir.LinearCrossEntropy {
			return nil
		}
		grad, ok := grads[loss{n.Attr, [3]ir.Value(n.In)}]
		if !ok {
			return nil
		}
		if r.vals[grad] == 0 {
			return []ir.Value{0} // added later
		}
		return []ir.Value{r.new.Out(r.vals[grad], 1)}
	})
}

// ancestors returns the operations that v depends on.
func ancestors(g *ir.Graph, v ir.Value) []ir.Op {
	var ops []ir.Op
	for x, live := range reach(g, []ir.Value{v}) {
		if live {
			ops = append(ops, g.Nodes[x].Op)
		}
	}
	return ops
}
