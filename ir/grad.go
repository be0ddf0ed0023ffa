package ir

import (
	"fmt"
	"maps"
	"slices"
)

// Backward is what an operation's gradient rule sees of one node.
type Backward struct {
	G    *Graph
	Attr any

	d    *differ
	node Value
	dys  []Value
	in   []Value
}

// In is input i, computed again where its segment is checkpointed.
func (b *Backward) In(i int) Value { return b.in[i] }

// Out is output i of the node, computed again where its segment is checkpointed.
func (b *Backward) Out(i int) Value { return b.G.Out(b.d.recompute(b.node), i) }

// Dy is the gradient of output i, or zero where none flows into it.
func (b *Backward) Dy(i int) Value {
	if i >= len(b.dys) {
		return 0
	}
	return b.dys[i]
}

// Needs reports whether the gradient of input i is wanted.
func (b *Backward) Needs(i int) bool { return b.d.needs[b.d.g.Nodes[b.node].In[i]] }

// InType and OutType are the types of an input and of an output.
func (b *Backward) InType(i int) Type { return b.G.Type(b.d.g.Nodes[b.node].In[i]) }

// OutType is the type of output i.
func (b *Backward) OutType(i int) Type { return b.d.g.Nodes[b.node].Outs[i] }

// Acc adds dx to the gradient of input i.
func (b *Backward) Acc(i int, dx Value) {
	b.d.acc(b.d.g.Nodes[b.node].In[i], dx)
}

// GradOptions steer [Graph.Gradients].
type GradOptions struct {
	// Checkpoint recomputes in backward what lies inside of a segment (see
	// [Graph.SetSegment]) instead of keeping it: only values that cross
	// from one segment into another stay in memory.
	Checkpoint bool
	// Segments is how many segments Checkpoint holds for: the first ones, whose
	// values would be kept longest. 0 is all.
	Segments int
}

// Gradients appends the nodes that compute the gradient of the scalar loss
// with respect to each of wrt, by reverse-mode differentiation. A value that
// loss does not depend on is an error that names it.
func (g *Graph) Gradients(loss Value, wrt []Value, opts GradOptions) []Value {
	out := make([]Value, len(wrt))
	if loss == 0 || slices.Contains(wrt, 0) {
		return out
	}
	if n := g.Type(loss).Shape.Elements(g.MaxDims()); n != 1 {
		g.Fail(fmt.Errorf("gradients: the loss has %d elements, expected 1", n))
		return out
	}
	for _, v := range wrt {
		if g.Type(v).DType.Quantized() {
			g.Fail(fmt.Errorf("gradients: %s is quantised, and cannot be trained", g.Describe(v)))
			return out
		}
	}
	d := &differ{g: g, opts: opts, needs: make([]bool, len(g.Nodes)), grads: map[Value][]Value{}, clones: map[Value]Value{}}
	for _, v := range wrt {
		d.needs[v] = true
	}
	for v := 1; v <= int(loss); v++ {
		for _, in := range g.Nodes[v].In {
			if d.needs[in] && !Def(g.Nodes[v].Op).NoGradient {
				d.needs[v] = true
			}
		}
	}
	d.acc(loss, g.Const(1, g.Type(loss)))
	segment := g.segment
	for v := loss; v > 0; v-- {
		if d.needs[v] && len(d.grads[v]) > 0 {
			d.visit(v)
		}
	}
	g.segment, g.clone = segment, 0
	for i, v := range wrt {
		if out[i] = d.grad(v); out[i] != 0 {
			continue
		}
		if g.err == nil {
			g.Fail(fmt.Errorf("gradients: the loss does not depend on %s", g.Describe(v)))
		}
	}
	return out
}

// Describe names v for an error message.
func (g *Graph) Describe(v Value) string {
	n := &g.Nodes[v]
	if p, ok := n.Attr.(ParamAttr); ok {
		return fmt.Sprintf("param %q %v", p.Name, n.Outs[0])
	}
	return fmt.Sprintf("%%%d %v %v", v, n.Op, n.Outs[0])
}

type differ struct {
	g      *Graph
	opts   GradOptions
	needs  []bool
	grads  map[Value][]Value // by output of the node
	clones map[Value]Value   // recomputed nodes of the segment under way
	seg    int
}

func (d *differ) acc(v, dx Value) {
	if dx == 0 {
		return
	}
	if t, s := d.g.Type(dx), d.g.Type(v).Shape; !t.Shape.Equal(s) {
		d.g.Fail(fmt.Errorf("the gradient %v of %s has another shape", t, d.g.Describe(v)))
		return
	}
	i := 0
	if n := &d.g.Nodes[v]; n.Op == Out {
		i, v = n.Attr.(OutAttr).Index, n.In[0]
	}
	gs := d.grads[v]
	for len(gs) <= i {
		gs = append(gs, 0)
	}
	if gs[i] == 0 {
		gs[i] = dx
	} else {
		gs[i] = d.g.Add(gs[i], dx)
	}
	d.grads[v] = gs
}

// grad is the gradient gathered so far for v, or zero.
func (d *differ) grad(v Value) Value {
	i := 0
	if n := &d.g.Nodes[v]; n.Op == Out {
		i, v = n.Attr.(OutAttr).Index, n.In[0]
	}
	if gs := d.grads[v]; i < len(gs) {
		return gs[i]
	}
	return 0
}

func (d *differ) visit(v Value) {
	g := d.g
	n := g.Nodes[v]
	if !slices.ContainsFunc(n.In, func(x Value) bool { return d.needs[x] }) {
		return // one of those that gradients are asked for, with none of them before it
	}
	if n.Segment != d.seg {
		d.seg = n.Segment
		maps.DeleteFunc(d.clones, func(Value, Value) bool { return true })
	}
	g.segment, g.clone = 0, 0
	b := &Backward{G: g, Attr: n.Attr, d: d, node: v, dys: d.grads[v], in: make([]Value, len(n.In))}
	for i, x := range n.In {
		b.in[i] = d.recompute(x)
	}
	switch def := Def(n.Op); {
	case def.Gradient != nil:
		def.Gradient(b)
	case def.Decompose != nil:
		d.throughDecomposition(b, def)
	case !def.NoGradient:
		g.Fail(fmt.Errorf("%v has no gradient", n.Op))
	}
}

// recomputes reports whether the values of a segment are computed again.
func (d *differ) recomputes(segment int) bool {
	return d.opts.Checkpoint && segment > 0 && (d.opts.Segments == 0 || segment <= d.opts.Segments)
}

// recompute gives the value that backward reads for v: v itself, or with
// checkpointing a copy of the node made now, if v lies inside of the segment
// that backward is passing through.
func (d *differ) recompute(v Value) Value {
	g := d.g
	n := g.Nodes[v]
	widened := d.isWidened(v)
	if !widened && (!d.recomputes(n.Segment) || n.Segment != d.seg) || n.Op == Param || n.Op == Const {
		return v
	}
	if c, ok := d.clones[v]; ok {
		return c
	}
	in := make([]Value, len(n.In))
	for i, x := range n.In {
		in[i] = d.recompute(x)
	}
	clone := n
	clone.In = in
	g.segment, g.clone = 0, int(d.seg)
	if widened && g.clone == 0 {
		g.clone = -1
	}
	c := g.append(clone)
	g.clone = 0
	d.clones[v] = c
	return c
}

// isWidened reports whether v is a param of 8-bit floats made wide, perhaps times another:
// it is cheaper to make again than to keep.
func (d *differ) isWidened(v Value) bool {
	n := &d.g.Nodes[v]
	switch n.Op {
	case Cast:
		from := d.g.Nodes[n.In[0]]
		return from.Op == Param && from.Outs[0].DType.IsFloat() && from.Outs[0].DType.Bits() == 8
	case Binary:
		return d.isWidened(n.In[0]) && d.g.Nodes[n.In[1]].Op == Param
	}
	return false
}

// throughDecomposition differentiates the composite's decomposition, whose
// nodes are made now; those that gradients do not read fall away later.
func (d *differ) throughDecomposition(b *Backward, def *OpDef) {
	g := d.g
	first := Value(len(g.Nodes))
	// Stand-ins for the inputs keep the walk inside of the decomposition.
	outs := def.Decompose(g, b.Attr, b.in)
	inner := &differ{g: g, needs: make([]bool, len(g.Nodes)), grads: map[Value][]Value{}, clones: map[Value]Value{}}
	for i, v := range b.in {
		if b.Needs(i) {
			inner.needs[v] = true
		}
	}
	last := Value(len(g.Nodes)) - 1
	for v := first; v <= last; v++ {
		for _, in := range g.Nodes[v].In {
			if inner.needs[in] && !Def(g.Nodes[v].Op).NoGradient {
				inner.needs[v] = true
			}
		}
	}
	for i, o := range outs {
		if dy := b.Dy(i); dy != 0 {
			inner.acc(o, dy)
		}
	}
	for v := last; v >= first; v-- {
		if inner.needs[v] && len(inner.grads[v]) > 0 {
			inner.visit(v)
		}
	}
	for i, v := range b.in {
		// The same value may be given for two inputs: its gradient counts once.
		if dx := inner.grad(v); b.Needs(i) && dx != 0 && !slices.Contains(b.in[:i], v) {
			b.Acc(i, dx)
		}
	}
}
