package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of kernels/cuda/gemv.cu, which compute sums of products for few rows in float32.

const (
	vectorMost    = 8 // rows of a launch
	vectorSums    = 3 // the most sums of a launch
	vectorAhead   = 8 // the number of following launches that are searched for further sums
	vectorThreads = 256
)

// vectorCols holds the columns of a block of each kernel.
var vectorCols = [...]int{2, 2, 2, 4}

// vector is one launch of sums of products that share their first factor, such as q, k and v.
type vector struct {
	sums    []terms
	glu     *ir.Launch // of the two sums, if the launch computes only their GLU
	kernels [4]*Kernel // for 1, 2, 4 and 8 rows; nil for numbers that there never are
	most    int        // rows that the kernels compute
	thin    *thin      // for more rows, or nil
}

// newVector plans the sum that l computes together with sums of later launches.
func newVector(c *compiler, l *ir.Launch) (*vector, error) {
	p := c.vectorGroup(l)
	p.most = c.target.VectorRows
	least, most := p.sums[0].rows(c.dims)
	name := "gemv"
	if p.sums[0].block() != (ir.DequantizeAttr{}) {
		name = "gemv_blocks"
	}
	for i := range p.kernels {
		if i < vectorKernel(least) || i > vectorKernel(min(most, p.most)) {
			continue
		}
		var err error
		if p.kernels[i], err = c.kernel("gemv", fmt.Sprintf("%s_%d", name, 1<<i), vectorThreads); err != nil {
			return nil, err
		}
	}
	var err error
	p.thin, err = newThin(c, p.sums)
	return p, err
}

// takes reports whether the launch computes its sums in this run.
func (p *vector) takes(r *Run) bool {
	m, _, _ := p.sums[0].sizes(r.Dims)
	return m <= p.most || p.thin != nil && m <= p.thin.most && p.thin.takes(r, p.sums)
}

// vectorKernel returns the index of the kernel for m rows.
func vectorKernel(m int) (i int) {
	for 1<<i < m {
		i++
	}
	return i
}

// vectorGroup returns the sum of l, with sums of later launches. They share its first factor and do not depend on the
// launches in between. If there are two sums, and only a GLU reads them, it joins the GLU.
func (c *compiler) vectorGroup(l *ir.Launch) *vector {
	p, group := &vector{sums: []terms{termsOf(l)}}, []*ir.Launch{l}
	products, scaled, low := len(p.sums[0].list), p.sums[0].scaledTerms(), c.isLow(c.launch)
	least, _ := p.sums[0].rows(c.dims)
	var between []*ir.Launch
	all := c.prog.Launches
	for i := c.launch + 1; i < min(len(all), c.launch+1+vectorAhead); i++ {
		next := &all[i]
		if next.Op == ir.Gemm && next.In[0].Same(l.In[0]) && next.In[0].Type.Equal(l.In[0].Type) {
			t := termsOf(next)
			if len(group) == vectorSums || c.joined[i] != nil || !t.dots() || products+len(t.list) > ir.MaxProducts || c.isLow(i) != low || least > c.target.VectorRows && !c.isThin(&t) ||
				scaled+t.scaledTerms() > mostScales || t.isFloat8() != p.sums[0].isFloat8() || t.block() != p.sums[0].block() || c.depends(next, between) || c.depends(next, group) {
				break // it begins a launch of its own
			}
			p.sums, group, products, scaled = append(p.sums, t), append(group, next), products+len(t.list), scaled+t.scaledTerms()
			c.joined[i] = p
			continue
		}
		if next.Op == ir.GLU && len(group) == 2 && !c.depends(next, between) && c.joinsGLU(group, i) {
			if p.glu = next; !next.In[0].Same(p.sums[0].out) {
				slices.Reverse(p.sums)
			}
			c.joined[i] = p
			break
		}
		between = append(between, next)
	}
	return p
}

// isLow reports whether launch i computes x·Aᵀ for one of the products of x that follow it. Such sums are joined with
// each other only, so that gate and up are joined even if one of them has no adapter.
func (c *compiler) isLow(i int) bool {
	l := &c.prog.Launches[i]
	for _, o := range c.prog.Launches[i+1:] {
		if o.Op != ir.Gemm || !o.In[0].Same(l.In[0]) {
			break
		}
		if slices.ContainsFunc(o.In, l.Out[0].Same) {
			return true
		}
	}
	return false
}

// joinsGLU reports whether launch i is the GLU of two sums that nothing else reads, and writes over none of their
// factors.
func (c *compiler) joinsGLU(group []*ir.Launch, i int) bool {
	glu := &c.prog.Launches[i]
	gate, up, y := glu.In[0], glu.In[1], glu.Out[0]
	a, b := group[0].Out[0], group[1].Out[0]
	if !(a.Same(gate) && b.Same(up) || a.Same(up) && b.Same(gate)) || !gate.Type.Equal(a.Type) || !c.unread(gate, i) || !c.unread(up, i) {
		return false
	}
	over := func(v ir.Ref) bool { return y.Overlaps(v, c.dims) }
	return !slices.ContainsFunc(group[0].In, over) && !slices.ContainsFunc(group[1].In, over)
}

func (p *vector) skip() {
	for _, k := range p.kernels {
		if k != nil {
			k.skip()
		}
	}
	if p.thin != nil {
		p.thin.skip()
	}
}

// The parameters of sums are numbered.
var vectorOut, vectorBias, vectorAddend, vectorN = numbered("out"), numbered("bias"), numbered("addend"), numbered("n")

func (p *vector) fill(r *Run) {
	p.skip()
	m, _, _ := p.sums[0].sizes(r.Dims)
	if m > p.most {
		p.thin.fill(r, p)
		return
	}
	i, total := vectorKernel(m), 0
	var n [vectorSums]int
	ends, count := 0, 0
	for s := range vectorSums {
		if s < len(p.sums) {
			t := &p.sums[s]
			_, n[s], _ = t.sizes(r.Dims)
			count += t.count(r)
			if p.glu == nil || s == 0 {
				total += blocks(n[s], vectorCols[i])
			}
		}
		ends |= count << (8 * s)
	}
	k := p.kernels[i].grid(total, min(m, 1), 1)
	p.outputs(r, k)
	k.int("m", m)
	for s, n := range n {
		k.int(vectorN[s], n)
	}
	k.int("ends", ends).int("act", p.act()).int("stored", p.stored())
	var list scales
	at := 0
	for s := range p.sums {
		at = p.sums[s].products(r, k, at, &list)
	}
	k.products(at).scales(&list)
}

// outputs adds the addresses of outputs, biases and addends.
func (p *vector) outputs(r *Run, k *Kernel) {
	for s := range vectorSums {
		var out, bias, addend Pointer
		if s < len(p.sums) {
			out = r.at(p.sums[s].out)
			bias, addend = p.sums[s].edges(r)
		}
		if s == 0 && p.glu != nil {
			out = r.at(p.glu.Out[0])
		}
		k.pointer(vectorOut[s], out).pointer(vectorBias[s], bias).pointer(vectorAddend[s], addend)
	}
}

// stored returns the bits of terms.stored of each sum, two for each.
func (p *vector) stored() (bits int) {
	for s := range p.sums {
		bits |= p.sums[s].stored() << (2 * s)
	}
	if p.glu != nil { // the first output is that of the GLU; there is no third sum
		bits = bits&^1 | narrow(p.glu.Out[0]) | bits&1<<4
	}
	return bits
}

// act returns the number of the activation of the launch's GLU, or -1.
func (p *vector) act() int {
	if p.glu == nil {
		return -1
	}
	return int(p.glu.Attr.(ir.GLUAttr).Act)
}
