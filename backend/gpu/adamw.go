package gpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of files adamw and sum_squares.

// squaresBlock is the number of elements that a block squares and sums.
const squaresBlock = 16384

func prepareSumSquares(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	each, err := c.kernel("sum_squares", "sum_squares_f32", 256)
	if err != nil {
		return nil, err
	}
	whole, err := c.kernel("sum_squares", "sum_partials_f32", 256)
	if err != nil {
		return nil, err
	}
	c.reserve(8 * blocks(in.Type.Shape.Elements(c.dims), squaresBlock))
	return func(r *Run) {
		n := r.count(in)
		parts := max(1, blocks(n, squaresBlock))
		each.grid(parts, 1, 1).pointer("out", r.at(out)).pointer("partial", r.Scratch).pointer("x", r.at(in)).long("n", n)
		whole.skip()
		if parts > 1 {
			whole.grid(1, 1, 1).pointer("out", r.at(out)).pointer("partial", r.Scratch).int("n", parts)
		}
	}, nil
}

// adamWAhead is the number of following launches that are searched for further tensors.
const adamWAhead = 64

// prepareAdamW fuses later AdamW launches of the program into this one if they do not depend on the launches in
// between.
func prepareAdamW(c *compiler, l *ir.Launch) (step, error) {
	if c.merged[c.launch] {
		return func(*Run) {}, nil
	}
	if !inPlace(l) {
		return c.adamWApart(l)
	}
	tensors := c.adamWGroup(l)
	k, err := c.kernel("adamw", "adamw_f32", 256)
	if err != nil {
		return nil, err
	}
	most := c.target.AdamWTensors
	return func(r *Run) {
		total := 0
		for _, t := range tensors {
			total += blocks(r.count(t.Out[0]), 1024)
		}
		k.grid(total, 1, 1)
		k.adamWRates(r, l)
		for i := range most {
			if i >= len(tensors) {
				k.adamWTensor(i, 0, 0, 0, 0, 0)
				continue
			}
			in := tensors[i].In
			k.adamWTensor(i, r.at(in[0]), r.at(in[1]), r.at(in[2]), r.at(in[3]), r.count(in[0]))
		}
	}, nil
}

// The parameters of tensors are numbered.
var adamWP, adamWM, adamWV, adamWG, adamWN = numbered("p"), numbered("m"), numbered("v"), numbered("g"), numbered("n")

// adamWTensor adds the arguments of tensor i.
func (k *Kernel) adamWTensor(i int, p, m, v, g Pointer, n int) {
	k.pointer(adamWP[i], p).pointer(adamWM[i], m).pointer(adamWV[i], v).pointer(adamWG[i], g).long(adamWN[i], n)
}

// adamWRates adds the parameters that come before the tensors.
func (k *Kernel) adamWRates(r *Run, l *ir.Launch) {
	a := l.Attr.(ir.AdamWAttr)
	k.pointer("rates", r.at(l.In[4])).pointer("scale", r.at(l.In[5]))
	k.float("beta1c", float32(1-a.Beta1)).float("beta2", float32(a.Beta2)).float("beta2c", float32(1-a.Beta2)).float("eps", float32(a.Eps))
}

// adamWApart handles launches whose results are not written over their state.
func (c *compiler) adamWApart(l *ir.Launch) (step, error) {
	k, err := c.kernel("adamw", "adamw_apart_f32", 256)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		n := r.count(l.Out[0])
		k.grid(blocks(n, 1024), 1, 1)
		k.adamWRates(r, l)
		k.pointer("p", r.at(l.Out[0])).pointer("m", r.at(l.Out[1])).pointer("v", r.at(l.Out[2]))
		k.pointer("p0", r.at(l.In[0])).pointer("m0", r.at(l.In[1])).pointer("v0", r.at(l.In[2])).pointer("g", r.at(l.In[3]))
		k.long("n", n)
	}, nil
}

// adamWGroup returns l and the later launches that are fused with it.
func (c *compiler) adamWGroup(l *ir.Launch) []*ir.Launch {
	group := []*ir.Launch{l}
	var between []*ir.Launch
	all := c.prog.Launches
	for i := c.launch + 1; i < min(len(all), c.launch+1+adamWAhead) && len(group) < c.target.AdamWTensors; i++ {
		next := &all[i]
		if c.merged[i] {
			continue // it has run by then
		}
		if next.Op == ir.AdamW && next.Attr == l.Attr && inPlace(next) && next.In[4].Same(l.In[4]) && next.In[5].Same(l.In[5]) &&
			!c.depends(next, between) && !c.depends(next, group) {
			group = append(group, next)
			c.merged[i] = true
			continue
		}
		between = append(between, next)
	}
	return group
}

// inPlace reports whether an AdamW launch updates its state in place.
func inPlace(l *ir.Launch) bool {
	for i, out := range l.Out {
		if !out.Same(l.In[i]) {
			return false
		}
	}
	return true
}

// depends reports whether l must run after one of the others.
func (c *compiler) depends(l *ir.Launch, others []*ir.Launch) bool {
	return slices.ContainsFunc(others, func(o *ir.Launch) bool { return l.Conflicts(o, c.dims) })
}
