package gpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
)

// These launches run the kernels of files norm, softmax, rope, glu, activate and dropout.

// A warp holds a row of up to warpRow elements in registers, and a block has rowWarps warps. A longer row is processed
// by a whole block.
const (
	warpRow  = 1024
	rowWarps = 8
)

// rowThreads returns the number of threads that process a row of n elements.
func rowThreads(n int) uint32 {
	if n <= 8192 {
		return 256
	}
	return 1024
}

// byRows is a pair of kernels; the row length selects one.
type byRows struct{ warp, block *Kernel }

func (c *compiler) byRows(file, name, form string) (k byRows, err error) {
	if k.warp, err = c.kernel(file, name+"_warp"+form, 32*rowWarps); err != nil {
		return k, err
	}
	k.block, err = c.kernel(file, name+"_row"+form, 1024)
	return k, err
}

// begin sets the grid for rows of n elements. The caller adds the parameters before the sizes.
func (b byRows) begin(rows, n int) *Kernel {
	b.warp.skip()
	b.block.skip()
	if n <= warpRow {
		return b.warp.grid(blocks(rows, rowWarps), 1, 1)
	}
	b.block.threads(rowThreads(n))
	return b.block.grid(rows, 1, 1)
}

// sizes adds the number of rows, if the kernel takes it, and the row length under the parameter's name.
func (b byRows) sizes(k *Kernel, rows int, name string, n int) *Kernel {
	if k == b.warp {
		k.long("rows", rows)
	}
	return k.int(name, n)
}

// storesNormGrad reports whether the kernels read or write an operand as bfloat16: all but the weights.
func storesNormGrad(_ any, _ []ir.Type, at ir.Place) bool {
	return at.Out || at.Index != normWeight[ir.RMSNormGrad]
}

func prepareRMSNorm(c *compiler, l *ir.Launch) (step, error) {
	name, names, weight, out := "rms_norm", []string{"x", "w"}, normWeight[l.Op], l.Out[0]
	attr, rounds := roundingOf(l)
	eps := attr.(ir.NormAttr).Eps
	outName := "out"
	if l.Op == ir.RMSNormGrad {
		name, names, outName = "rms_norm_grad", []string{"dy", "x", "w", "addend"}, "dx"
	}
	stored := narrow(append([]ir.Ref{out}, slices.Delete(slices.Clone(l.In), weight, weight+1)...)...) | bit(rounds)<<4
	by, err := c.byRows("norm", name, form(stored))
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		rows, d := r.matrix(out)
		k := by.begin(rows, d).pointer(outName, r.at(out))
		for i, name := range names {
			var p Pointer // there may be no addend
			if i < len(l.In) {
				p = r.at(l.In[i])
			}
			k.pointer(name, p)
		}
		by.sizes(k, rows, "d", d).float("eps", eps).int("kind", firstFactors[l.In[weight].Type.DType]).stored(stored)
	}, nil
}

func prepareSoftmax(c *compiler, l *ir.Launch) (step, error) {
	in, out := l.In[0], l.Out[0]
	stored := narrow(out, in)
	by, err := c.byRows("softmax", "softmax", form(stored))
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		rows, n := r.matrix(out)
		by.sizes(by.begin(rows, n).pointer("out", r.at(out)).pointer("x", r.at(in)), rows, "n", n).stored(stored)
	}, nil
}

func prepareRoPETable(c *compiler, l *ir.Launch) (step, error) {
	positions, frequencies, out, scale := l.In[0], l.In[1], l.Out[0], l.Attr.(ir.RoPETableAttr).Scale
	k, err := c.kernel("rope", "rope_table_f32", elementThreads)
	if err != nil {
		return nil, err
	}
	return func(r *Run) {
		n, h := r.count(positions), r.count(frequencies)
		k.grid(blocks(n*h, elementThreads), 1, 1).pointer("out", r.at(out)).pointer("positions", r.at(positions)).pointer("frequencies", r.at(frequencies))
		k.int("n", n).int("h", h).float("scale", scale)
	}, nil
}

// aligned reports whether all values are aligned for 16-byte reads.
func (r *Run) aligned(values ...ir.Ref) bool {
	for _, v := range values {
		if r.at(v)%16 != 0 {
			return false
		}
	}
	return true
}

func prepareRoPE(c *compiler, l *ir.Launch) (step, error) {
	if group := c.cacheGroup(l); group != nil {
		return c.ropeCache(group)
	}
	a, table, name := l.Attr.(ir.RoPEAttr), l.In[1], "rope"
	if a.Interleaved {
		name = "rope_neighbours"
	}
	group := []*ir.Launch{l}
	if i := c.ropePair(l); i > 0 {
		group = append(group, &c.prog.Launches[i])
		c.merged[i] = true
	}
	var values []ir.Ref
	for _, l := range group {
		values = append(values, l.Out[0], l.In[0])
	}
	stored := narrow(values...)
	one, err := c.kernel("rope", name+form(stored), elementThreads)
	if err != nil {
		return nil, err
	}
	four, err := c.kernel("rope", name+"_v4"+form(stored), elementThreads)
	if err != nil {
		return nil, err
	}
	h, sign := a.HeadDim/2, float32(1)
	if a.Inverse {
		sign = -1
	}
	return func(r *Run) {
		one.skip()
		four.skip()
		k, each := one, 2
		if h%4 == 0 && r.aligned(table) && r.aligned(values...) {
			k, each = four, 8
		}
		var out, x [2]Pointer
		var pairs, heads [2]int
		for i, l := range group {
			_, d := r.matrix(l.Out[0])
			out[i], x[i], pairs[i], heads[i] = r.at(l.Out[0]), r.at(l.In[0]), r.count(l.Out[0])/each, d/a.HeadDim
		}
		k.grid(blocks(pairs[0]+pairs[1], elementThreads), 1, 1).pointer("out", out[0]).pointer("x", x[0]).pointer("table", r.at(table)).pointer("out1", out[1]).pointer("x1", x[1])
		k.long("pairs", pairs[0]).int("heads", heads[0]).long("pairs1", pairs[1]).int("heads1", heads[1]).int("h", h).float("sign", sign).stored(stored)
	}, nil
}

// ropePair returns the number of a launch that l can compute too, or zero. It rotates another value in the same way.
func (c *compiler) ropePair(l *ir.Launch) int {
	all := c.prog.Launches
	for i := c.launch + 1; i < min(len(all), c.launch+1+vectorAhead); i++ {
		next := &all[i]
		if next.Op != ir.RoPE || next.Attr != l.Attr || !next.In[1].Same(l.In[1]) || !next.In[1].Type.Equal(l.In[1].Type) {
			continue
		}
		if slices.ContainsFunc(all[c.launch:i], func(o ir.Launch) bool { return next.Conflicts(&o, c.dims) }) {
			return 0
		}
		return i
	}
	return 0
}

// takesGLU claims the activations that kernels are named after.
func takesGLU(attr any, _ []ir.Type) bool { return attr.(ir.GLUAttr).Act <= ir.GELUTanh }

func prepareGLU(c *compiler, l *ir.Launch) (step, error) {
	name, outs, ins := "glu_", []string{"out"}, []string{"gate", "up"}
	if l.Op == ir.GLUGrad {
		name, outs, ins = "glu_grad_", []string{"dgate", "dup"}, []string{"dy", "gate", "up"}
	}
	k, fill, err := c.elementwise("glu", name+l.Attr.(ir.GLUAttr).Act.String(), l, outs, ins)
	if err != nil {
		return nil, err
	}
	joined, gated := c.joined[c.launch], c.gated[c.launch]
	return func(r *Run) {
		if joined != nil && joined.takes(r) || gated != nil && gated.takes(r) {
			k.skip()
			return
		}
		fill(r)
	}, nil
}

// takesActivate claims the activations that kernels are named after.
func takesActivate(attr any, _ []ir.Type) bool { return attr.(ir.ActivateAttr).Act <= ir.QuickGELU }

func prepareActivate(c *compiler, l *ir.Launch) (step, error) {
	name, outs, ins := "activate_", []string{"out"}, []string{"x"}
	if l.Op == ir.ActivateGrad {
		name, outs, ins = "activate_grad_", []string{"dx"}, []string{"dy", "x"}
	}
	_, fill, err := c.elementwise("activate", name+l.Attr.(ir.ActivateAttr).Act.String(), l, outs, ins)
	return fill, err
}

// elementwise selects a kernel that works element by element, and returns the step that fills it in. The kernel's name
// starts with prefix, and outs and ins are the names of its parameters.
func (c *compiler) elementwise(file, prefix string, l *ir.Launch, outs, ins []string) (*Kernel, step, error) {
	stored := narrow(slices.Concat(l.Out, l.In)...)
	k, err := c.kernel(file, prefix+form(stored), elementThreads)
	if err != nil {
		return nil, nil, err
	}
	return k, func(r *Run) {
		n := r.count(l.Out[0])
		k.elements(n)
		for i, v := range l.Out {
			k.pointer(outs[i], r.at(v))
		}
		for i, v := range l.In {
			k.pointer(ins[i], r.at(v))
		}
		k.long("n", n).stored(stored)
	}, nil
}

func prepareDropout(c *compiler, l *ir.Launch) (step, error) {
	a, x, key, out := l.Attr.(ir.DropoutAttr), l.In[0], l.In[1], l.Out[0]
	stored := narrow(out, x)
	k, err := c.kernel("dropout", "dropout"+form(stored), elementThreads)
	if err != nil {
		return nil, err
	}
	threshold, scale := philox.Threshold(a.P), float32(1/(1-a.P))
	return func(r *Run) {
		n := r.count(out)
		k.elements(n).pointer("out", r.at(out)).pointer("x", r.at(x)).pointer("key", r.at(key))
		k.long("n", n).int("stream", int(a.Stream)).int("threshold", int(threshold)).float("scale", scale).stored(stored)
	}, nil
}
