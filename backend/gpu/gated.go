package gpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of kernels/cuda/gemm_bf16.cu that compute a gated linear unit, or its gradient, with
// the product that it takes.

// gated is a product that a GLU or GLUGrad takes, in the launch of both.
type gated struct {
	unit         *ir.Launch
	gates        bool    // the product is the gate
	only         bool    // nothing else reads the product
	wide, narrow *Kernel // of tiles of 256 and of 128 columns; wide may be nil
	product      *bulk
}

// newGated returns the kernels for the product t and the unit that takes it, or nil if there is none. It is called
// while the product is planned.
func newGated(c *compiler, p *bulk) (*gated, error) {
	if p.t.hasBias || p.t.hasC {
		return nil, nil
	}
	g, at := c.unitOf(p.t)
	if g == nil {
		return nil, nil
	}
	layout := "glu"
	if g.unit.Op == ir.GLUGrad {
		layout = "glu_grad"
	}
	if p.t.list[0].tb != (g.unit.Op == ir.GLU) {
		return nil, nil
	}
	var err error
	if p.wide != nil {
		if g.wide, err = c.bulkKernel(layout, bulkWide); err != nil {
			return nil, err
		}
	}
	if g.narrow, err = c.bulkKernel(layout, bulkNarrow); err != nil {
		return nil, err
	}
	g.product = p
	c.gated[at] = g
	c.saves(g.saved)
	return g, nil
}

// unitOf finds the GLU or GLUGrad that takes the product of the launch that is being planned, and can be computed at
// its time.
func (c *compiler) unitOf(t terms) (g *gated, at int) {
	readers := c.readers(t.out, c.launch+1)
	at = slices.IndexFunc(c.prog.Launches[c.launch+1:], func(l ir.Launch) bool { return l.Op == ir.GLU || l.Op == ir.GLUGrad })
	if at += c.launch + 1; at <= c.launch || !slices.Contains(readers, at) {
		return nil, 0
	}
	unit := &c.prog.Launches[at]
	g = &gated{unit: unit, only: t.out.Space == ir.SpaceArena && len(readers) == 1}
	if !takesGLU(unit.Attr, nil) {
		return nil, 0
	}
	others := unit.In[1:]
	switch {
	case unit.Op == ir.GLUGrad:
		if !g.only || !unit.In[0].Same(t.out) {
			return nil, 0
		}
	case unit.In[0].Same(t.out):
		g.gates = true
	default:
		others = unit.In[:1]
	}
	for _, l := range c.prog.Launches[c.launch+1 : at] {
		one := ir.Launch{In: others, Out: unit.Out}
		if l.Conflicts(&one, c.dims) {
			return nil, 0
		}
	}
	// Elements are read before they are written, by the same thread.
	inPlace := func(x, y ir.Ref) bool {
		return !x.Overlaps(y, c.dims) || x.Same(y) && x.Type.Equal(y.Type) && x.Stored() == y.Stored()
	}
	for _, o := range unit.Out {
		for _, x := range others {
			if !inPlace(o, x) {
				return nil, 0
			}
		}
		if !g.only && o.Overlaps(t.out, c.dims) || slices.ContainsFunc(c.prog.Launches[c.launch].In, func(x ir.Ref) bool { return o.Overlaps(x, c.dims) }) {
			return nil, 0
		}
	}
	if slices.ContainsFunc(others, func(x ir.Ref) bool { return x.Overlaps(t.out, c.dims) }) {
		return nil, 0
	}
	return g, at
}

// takes reports whether the kernels compute the unit in this run.
func (g *gated) takes(r *Run) bool {
	return g.product.fits(r) && r.aligned(g.unit.In...) && r.aligned(g.unit.Out...)
}

// saved returns the bytes of the product, which is not read from memory, nor written if nothing else reads it.
func (g *gated) saved(r *Run) (read, written int) {
	if !g.takes(r) {
		return 0, 0
	}
	n := g.product.t.out.Bytes(r.Dims)
	if g.only {
		return n, n
	}
	return n, 0
}

func (g *gated) skip() {
	if g.wide != nil {
		g.wide.skip()
	}
	g.narrow.skip()
}

// begin sets the grid and the first arguments of a kernel for tiles of the given number of columns.
func (g *gated) begin(r *Run, m, n, columns int) *Kernel {
	k, unit := g.narrow, g.unit
	if columns == bulkWide {
		k = g.wide
	}
	k.bulkGrid(m, n, columns)
	act := int(unit.Attr.(ir.GLUAttr).Act)
	if unit.Op == ir.GLUGrad {
		k.pointer("dgate", r.at(unit.Out[0])).pointer("dup", r.at(unit.Out[1])).pointer("gate", r.at(unit.In[1])).pointer("up", r.at(unit.In[2]))
		return k.bulkSizes(m, n, columns, narrow(unit.Out[0], unit.Out[1], unit.In[1], unit.In[2], unit.In[0])).int("act", act)
	}
	product, other := g.product.t.out, unit.In[0]
	if g.gates {
		other = unit.In[1]
	}
	var out Pointer
	if !g.only {
		out = r.at(product)
	}
	k.pointer("out", out).pointer("y", r.at(unit.Out[0])).pointer("other", r.at(other))
	return k.bulkSizes(m, n, columns, narrow(product, unit.Out[0], other)).int("act", act).int("gates", bit(g.gates))
}
