package gpu

import (
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of kernels/metal/gemm_group.metal, which compute several independent sums of products
// by the tiles of gemm_mma.metal.

const (
	groupSums  = 3  // the most sums of a launch
	groupAhead = 40 // the number of following launches that are searched for further sums
)

// group is one launch of several sums.
type group struct {
	sums      []*mma
	main, sum *Kernel
}

// newTiles plans a sum by gemm_mma.cu, together with sums of later launches if the device has kernels for them.
func newTiles(c *compiler, l *ir.Launch, t terms) (product, error) {
	sums := []*mma{{t: t}}
	if c.target.GroupedProducts {
		sums = c.sumGroup(l, t)
	}
	if len(sums) == 1 {
		return newMMA(c, t)
	}
	name := "gemm_group_64"
	if c.target.Precision != backend.BF16 {
		name = "gemm_group_f32_64"
	}
	p := &group{sums: sums}
	var err error
	if p.main, err = c.kernel("gemm_group", name, 128); err != nil {
		return nil, err
	}
	if p.sum, err = c.kernel("gemm_group", "gemm_group_sum", 256); err != nil {
		return nil, err
	}
	bytes := 0
	for _, s := range sums {
		m, n, _ := s.t.sizes(c.dims)
		bytes += partial(m*n, s.stages(c.dims))
	}
	c.reserve(bytes)
	return p, nil
}

// sumGroup returns the sum of l, with sums of later launches that do not depend on it or on the launches in between.
// Sums of few rows may go another way. They share a launch only if all go that way together: those of one first factor.
func (c *compiler) sumGroup(l *ir.Launch, t terms) []*mma {
	sums, launches, products, scaled := []*mma{{t: t}}, []*ir.Launch{l}, len(t.list), t.scaledTerms()
	if t.out.Type.Rank() != 2 {
		return sums
	}
	var between []*ir.Launch
	all := c.prog.Launches
	for i := c.launch + 1; i < min(len(all), c.launch+1+groupAhead) && len(sums) < groupSums; i++ {
		next := &all[i]
		if next.Op == ir.Gemm && c.steps[i].behind == 0 && !c.merged[i] {
			o := termsOf(next)
			if o.chained && o.out.Type.Rank() == 2 && c.goesAlike(l, &t, next, &o) && products+len(o.list) <= ir.MaxProducts &&
				scaled+o.scaledTerms() <= mostScales && !c.depends(next, between) && !c.depends(next, launches) {
				sums, launches, products, scaled = append(sums, &mma{t: o}), append(launches, next), products+len(o.list), scaled+o.scaledTerms()
				c.steps[i].behind = i - c.launch
				continue
			}
		}
		between = append(between, next)
	}
	return sums
}

// goesAlike reports whether two sums are computed by tiles in the same runs.
func (c *compiler) goesAlike(l *ir.Launch, t *terms, next *ir.Launch, o *terms) bool {
	always := func(t *terms) bool {
		least, _ := t.rows(c.dims)
		return least > c.target.VectorRows || !t.dots()
	}
	return always(t) && always(o) || t.dots() && o.dots() && next.In[0].Same(l.In[0]) && next.In[0].Type.Equal(l.In[0].Type)
}

func (p *group) skip() {
	p.main.skip()
	p.sum.skip()
}

// The parameters of sums are numbered.
var groupM, groupParts = numbered("m"), numbered("parts")

func (p *group) fill(r *Run) {
	p.skip()
	var m, n, parts [groupSums]int
	ends, stored, count, total, elements := 0, 0, 0, 0, 0
	for i := range groupSums {
		parts[i] = 1
		if i < len(p.sums) {
			s := p.sums[i]
			m[i], n[i], _ = s.t.sizes(r.Dims)
			tiles := blocks(m[i], smallTile) * blocks(n[i], smallTile)
			parts[i] = partsOf(tiles, s.stages(r.Dims))
			total += tiles * parts[i]
			if parts[i] > 1 {
				elements += blocks(m[i]*n[i], 256)
			}
			count += s.t.count(r)
			stored |= s.t.stored() << (2 * i)
		}
		ends |= count << (8 * i)
	}
	for _, k := range []*Kernel{p.main.grid(total, 1, 1), p.sum.grid(elements, 1, 1)} {
		p.operands(r, k)
		for _, x := range []struct {
			names  [16]string
			values [groupSums]int
		}{{groupM, m}, {vectorN, n}, {groupParts, parts}} {
			for i, v := range x.values {
				k.int(x.names[i], v)
			}
		}
		k.int("ends", ends).int("stored", stored)
	}
	p.main.long("step_a", 0).long("step_b", 0)
	var list scales
	at := 0
	for _, s := range p.sums {
		at = s.t.products(r, p.main, at, &list)
	}
	p.main.products(at).scales(&list)
}

// operands adds the addresses of outputs, parts, biases and addends.
func (p *group) operands(r *Run, k *Kernel) {
	var out, bias, addend [groupSums]Pointer
	for i, s := range p.sums {
		out[i] = r.at(s.t.out)
		bias[i], addend[i] = s.t.edges(r)
	}
	for i, at := range out {
		k.pointer(vectorOut[i], at)
	}
	k.pointer("partial", r.Scratch)
	for i, at := range bias {
		k.pointer(vectorBias[i], at)
	}
	for i, at := range addend {
		k.pointer(vectorAddend[i], at)
	}
}
