package ir

import (
	"fmt"
	"maps"
	"slices"
)

// Backward is the view of a node that a gradient rule gets: its inputs, its outputs and their gradients.
type Backward struct {
	G    *Graph
	Attr any

	d    *differ
	node Value
	dys  []Value
	in   []Value
}

// In returns input i, recomputed if its segment is checkpointed.
func (b *Backward) In(i int) Value { return b.in[i] }

// Out returns output i of the node, recomputed if its segment is checkpointed.
func (b *Backward) Out(i int) Value { return b.G.Out(b.d.recompute(b.node), i) }

// Dy returns the gradient of output i, or zero if there is none.
func (b *Backward) Dy(i int) Value {
	if i >= len(b.dys) {
		return 0
	}
	return b.dys[i]
}

// Needs reports whether the gradient of input i is needed.
func (b *Backward) Needs(i int) bool { return b.d.needs[b.d.g.Nodes[b.node].In[i]] }

// InType returns the type of input i.
func (b *Backward) InType(i int) Type { return b.G.Type(b.d.g.Nodes[b.node].In[i]) }

// OutType returns the type of output i.
func (b *Backward) OutType(i int) Type { return b.d.g.Nodes[b.node].Outs[i] }

// Acc adds dx to the gradient of input i.
func (b *Backward) Acc(i int, dx Value) {
	b.d.acc(b.d.g.Nodes[b.node].In[i], dx)
}

// GradOptions configure [Graph.Gradients].
type GradOptions struct {
	// Checkpoint recomputes the values inside a segment (see [Graph.SetSegment]) in the backward pass instead of
	// keeping them. Only values that cross from one segment into another stay in memory.
	Checkpoint bool
	// Segments limits Checkpoint to the first segments, whose values would be kept longest. Zero means all.
	Segments int
}

// Gradients appends the nodes that compute the gradient of the scalar loss with respect to each of wrt, by reverse-mode
// differentiation. If loss does not depend on one of wrt, it fails with an error that names that value.
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

// Describe returns a description of v for an error message.
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
	clones map[Value]Value   // recomputed nodes of the current segment
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

// grad returns the gradient accumulated for v so far, or zero.
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
		return // one of wrt, with no other of wrt before it
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

// recomputes reports whether the values of a segment are recomputed.
func (d *differ) recomputes(segment int) bool {
	return d.opts.Checkpoint && segment > 0 && (d.opts.Segments == 0 || segment <= d.opts.Segments)
}

// recompute returns the value that the backward pass reads for v. It is v itself, or with checkpointing a clone of the
// node if v is inside the segment that the backward pass is in.
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

// isWidened reports whether v is a param of 8-bit floats that was cast to a wider type, and perhaps multiplied by
// another param, its scales. Recomputing it is cheaper than keeping it.
func (d *differ) isWidened(v Value) bool {
	n := &d.g.Nodes[v]
	switch n.Op {
	case Cast:
		from := d.g.Nodes[n.In[0]]
		return from.Op == Param && from.Outs[0].DType.IsFloat() && from.Outs[0].DType.Bits() == 8
	case Binary:
		return d.isWidened(n.In[0]) && d.g.Nodes[n.In[1]].Op == Param
	case Dequantize:
		return d.g.Nodes[n.In[0]].Op == Param && d.g.Nodes[n.In[1]].Op == Param
	}
	return false
}

// throughDecomposition differentiates the decomposition of a composite, whose nodes it appends. Nodes that no gradient
// reads are removed later.
func (d *differ) throughDecomposition(b *Backward, def *OpDef) {
	g := d.g
	first := Value(len(g.Nodes))
	// Stand-ins for the inputs keep the walk inside the decomposition.
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
		// One value may be the input twice; its gradient counts once.
		if dx := inner.grad(v); b.Needs(i) && dx != 0 && !slices.Contains(b.in[:i], v) {
			b.Acc(i, dx)
		}
	}
}
