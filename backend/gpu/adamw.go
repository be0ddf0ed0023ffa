package gpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of files adamw, adamw8, adamw_group, sum_squares and tensors.

// squaresBlock is the number of elements that a block squares and sums.
const squaresBlock = 16384

func prepareSumSquares(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	if c.target.Tables && c.mergeSquares(l) {
		return nothing(c, l)
	}
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

// nothing prepares a launch that runs as a part of another one.
func nothing(*compiler, *ir.Launch) (step, error) { return func(*Run) {}, nil }

// adamWAhead and tableAhead are the numbers of following launches that are searched for further tensors, without and
// with tables.
const adamWAhead, tableAhead = 64, 4096

// prepareAdamW fuses later AdamW launches of the program into this one if they do not depend on the launches in
// between.
func prepareAdamW(c *compiler, l *ir.Launch) (step, error) {
	if !inPlace(l) {
		return c.adamWApart(l)
	}
	if c.target.Tables {
		return c.adamWTable(l)
	}
	tensors := c.adamWGroup(l, c.target.AdamWTensors)
	k, err := c.kernel("adamw_group", "adamw_f32", 256)
	if err != nil {
		return nil, err
	}
	most := c.target.AdamWTensors
	return func(r *Run) {
		total := 0
		for _, t := range tensors {
			total += blocks(r.count(t.Out[0]), adamWBlock)
		}
		k.grid(total, 1, 1)
		k.adamWRates(r, l)
		k.adamWFactors(l.Attr)
		for i := range most {
			if i >= len(tensors) {
				k.adamWTensor(i, 0, 0, 0, 0)
				continue
			}
			in := tensors[i].In
			k.adamWTensor(i, r.at(in[0]), r.at(in[1]), r.at(in[2]), r.at(in[3]))
		}
		for i := range most {
			n := 0
			if i < len(tensors) {
				n = r.count(tensors[i].In[0])
			}
			k.long(adamWN[i], n)
		}
	}, nil
}

// adamWTable performs the steps of many tensors in one launch.
func (c *compiler) adamWTable(l *ir.Launch) (step, error) {
	t := &table{block: adamWBlock, written: 0b111} // p, m and v
	for _, o := range c.adamWGroup(l, tableTensors) {
		t.add(o.In[0], o.In[1], o.In[2], o.In[3])
	}
	k, begin, err := c.overTable(t, "adamw_table_f32")
	return func(r *Run) {
		a := begin(r)
		k.adamWRates(r, l)
		k.pointer("table", a.table).pointer("map", a.blocks)
		k.adamWFactors(l.Attr)
	}, err
}

// prepareAdamW8 performs the steps of many tensors in one launch if there are tables, and else each by itself.
func prepareAdamW8(c *compiler, l *ir.Launch) (step, error) {
	first := func(k *Kernel, r *Run) *Kernel {
		return k.pointer("rates", r.at(l.In[7])).pointer("scale", r.at(l.In[8])).pointer("maps", r.at(l.In[6]))
	}
	if !c.target.Tables || !inPlace(l) {
		k, err := c.kernel("adamw8", "adamw8_f32", 256)
		return func(r *Run) {
			n := r.count(l.Out[0])
			first(k.grid(blocks(n, adamW8Block), 1, 1), r)
			for i, name := range []string{"p", "m", "v", "ms", "vs"} {
				k.pointer(name, r.at(l.Out[i]))
			}
			for i, name := range []string{"p0", "m0", "v0", "ms0", "vs0", "g"} {
				k.pointer(name, r.at(l.In[i]))
			}
			k.adamW8Factors(l.Attr).long("n", n)
		}, err
	}
	t := &table{block: adamW8Block, written: 0b110111} // all but the gradient
	for _, o := range c.adamWGroup(l, tableTensors) {
		t.add(o.In[0], o.In[1], o.In[2], o.In[5], o.In[3], o.In[4])
	}
	k, begin, err := c.overTable(t, "adamw8_table_f32")
	return func(r *Run) {
		a := begin(r)
		first(k, r).pointer("table", a.table).pointer("map", a.blocks)
		k.adamW8Factors(l.Attr)
	}, err
}

// Elements that a block of the kernels of AdamW processes.
const adamWBlock, adamW8Block = 1024, 2048

// The parameters of tensors are numbered.
var adamWP, adamWM, adamWV, adamWG, adamWN = numbered("p"), numbered("m"), numbered("v"), numbered("g"), numbered("n")

// adamWTensor adds the arguments of tensor i.
func (k *Kernel) adamWTensor(i int, p, m, v, g Pointer) {
	k.pointer(adamWP[i], p).pointer(adamWM[i], m).pointer(adamWV[i], v).pointer(adamWG[i], g)
}

// adamWRates adds the parameters that come before the tensors.
func (k *Kernel) adamWRates(r *Run, l *ir.Launch) {
	k.pointer("rates", r.at(l.In[4])).pointer("scale", r.at(l.In[5]))
}

// adamWFactors adds the constants of AdamW.
func (k *Kernel) adamWFactors(attr any) {
	a := attr.(ir.AdamWAttr)
	k.float("beta1c", float32(1-a.Beta1)).float("beta2", float32(a.Beta2)).float("beta2c", float32(1-a.Beta2)).float("eps", float32(a.Eps))
}

// adamW8Factors adds the constants of AdamW8.
func (k *Kernel) adamW8Factors(attr any) *Kernel {
	a := attr.(ir.AdamWAttr)
	k.float("beta1", float32(a.Beta1)).float("beta1c", float32(1-a.Beta1))
	return k.float("beta2", float32(a.Beta2)).float("beta2c", float32(1-a.Beta2)).float("eps", float32(a.Eps))
}

// adamWApart handles launches whose results are not written over their state.
func (c *compiler) adamWApart(l *ir.Launch) (step, error) {
	k, err := c.kernel("adamw", "adamw_apart_f32", 256)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		n := r.count(l.Out[0])
		k.grid(blocks(n, adamWBlock), 1, 1)
		k.adamWRates(r, l)
		k.pointer("p", r.at(l.Out[0])).pointer("m", r.at(l.Out[1])).pointer("v", r.at(l.Out[2]))
		k.pointer("p0", r.at(l.In[0])).pointer("m0", r.at(l.In[1])).pointer("v0", r.at(l.In[2])).pointer("g", r.at(l.In[3]))
		k.adamWFactors(l.Attr)
		k.long("n", n)
	}, nil
}

// adamWGroup returns l and the later launches that are fused with it, at most the given number.
func (c *compiler) adamWGroup(l *ir.Launch, most int) []*ir.Launch {
	common, ahead := []int{4, 5}, adamWAhead
	if l.Op == ir.AdamW8 {
		common = []int{6, 7, 8}
	}
	if c.target.Tables {
		ahead = tableAhead
	}
	list := c.group(l, most, ahead, func(next *ir.Launch) bool {
		return next.Attr == l.Attr && inPlace(next) && !slices.ContainsFunc(common, func(j int) bool { return !next.In[j].Same(l.In[j]) })
	})
	c.merge(list)
	group := []*ir.Launch{l}
	for _, i := range list {
		group = append(group, &c.prog.Launches[i])
	}
	return group
}

// group returns the numbers of later launches that may run together with l. They have the operation of l, and depend on
// no launch in between.
func (c *compiler) group(l *ir.Launch, most, ahead int, takes func(*ir.Launch) bool) (list []int) {
	all := c.prog.Launches
	group := []*ir.Launch{l}
	var between []*ir.Launch
	for i := c.launch + 1; i < min(len(all), c.launch+1+ahead) && len(group) < most; i++ {
		next := &all[i]
		if c.merged[i] {
			continue // it has run by then, except sums of squares
		}
		if next.Op == l.Op && takes(next) &&
			!c.depends(next, between) && !c.depends(next, group) && !c.readLater(next) {
			group, list = append(group, next), append(list, i)
			continue
		}
		between = append(between, next)
	}
	return list
}

// merge marks launches that run as a part of the current one.
func (c *compiler) merge(list []int) {
	for _, i := range list {
		c.merged[i] = true
	}
}

// inPlace reports whether a launch of AdamW or AdamW8 updates its state in place.
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
