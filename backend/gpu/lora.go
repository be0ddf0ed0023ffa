package gpu

import (
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of kernels/cuda/lora_down.cu and kernels/shared/lora_input_grad.cu.

// thinRank is the largest rank that the thin tiles of the float32 kernels hold.
const thinRank = 16

// mostDowns is the largest number of products of one x that a launch computes.
const mostDowns = 3

// down is a launch of products with dropout on one operand: h = dropout(x)·Aᵀ, or, for the gradient, dA = dhᵀ·dropout(x).
// They have one x, but other operands and random numbers each.
type down struct {
	list         []*ir.Launch
	grad         bool
	main, sum    *Kernel
	tileM, tileN int
}

// storesDown reports whether the kernels read an operand as bfloat16.
func storesDown(_ any, _ []ir.Type, at ir.Place) bool { return !at.Out && at.Index < 2 }

// storesDownGrad reports whether the kernels read an operand as bfloat16: x, not the gradient of h, which is small.
func storesDownGrad(_ any, _ []ir.Type, at ir.Place) bool { return !at.Out && at.Index == 1 }

// prepareDown plans a LoRADown or LoRADownGrad, together with the next launches of the same x.
func prepareDown(c *compiler, l *ir.Launch) (step, error) {
	p := &down{list: c.downs(l), grad: l.Op == ir.LoRADownGrad, tileM: 64, tileN: 64}
	name, threads := "lora_down", 256
	if p.grad {
		name += "_grad"
	}
	switch {
	case c.target.Precision == backend.BF16:
		name, threads = name+"_mma", 128
	case p.rank(c.dims) > thinRank:
		name += "_f32_64"
	case p.grad:
		name, p.tileM = name+"_f32_16", 16
	default:
		name, p.tileN = name+"_f32_16", 16
	}
	var err error
	if p.main, err = c.kernel("lora_down", name, threads); err != nil {
		return nil, err
	}
	if threads == 128 {
		if err := c.share(p.main, stagesBytes(64)); err != nil {
			return nil, err
		}
	}
	if p.sum, err = c.kernel("lora_down", "lora_down_sum", 256); err != nil {
		return nil, err
	}
	m, n, k := p.sizes(c.dims)
	bytes := len(p.list) * partial(m*n, blocks(k, stageK))
	if hasAddend(l) {
		bytes = max(bytes, len(p.list)*4*m*n)
	}
	c.reserve(bytes)
	c.saves(p.saved)
	return p.fill, nil
}

// downs returns l and the launches that are computed with it. They follow it, have the same x, sizes and types, and are
// independent.
func (c *compiler) downs(l *ir.Launch) (list []*ir.Launch) {
	x, other := 0, 1 // operands
	if l.Op == ir.LoRADownGrad {
		x, other = other, x
	}
	all, first := c.prog.Launches, l.Attr.(ir.DropoutAttr)
	for i := c.launch; i < min(len(all), c.launch+mostDowns); i++ {
		o := &all[i]
		if o.Op != l.Op || o.Attr.(ir.DropoutAttr).P != first.P || hasAddend(o) != hasAddend(l) || !o.In[x].Same(l.In[x]) || !o.In[2].Same(l.In[2]) ||
			!o.Out[0].Type.Equal(l.Out[0].Type) || !o.In[other].Type.Equal(l.In[other].Type) || o.In[other].Stored() != l.In[other].Stored() || c.depends(o, list) {
			break
		}
		if i > c.launch {
			c.merged[i] = true
		}
		list = append(list, o)
	}
	return list
}

func (p *down) rank(dims []int) int {
	m, n, _ := p.sizes(dims)
	if p.grad {
		return m
	}
	return n
}

// sizes returns the sizes of an output (m, n) and of the long axis (k).
func (p *down) sizes(dims []int) (m, n, k int) {
	a, out := p.list[0].In[0].Type.Shape, p.list[0].Out[0].Type.Shape
	m, n, k = out[0].Resolve(dims), out[1].Resolve(dims), a[1].Resolve(dims)
	if p.grad {
		k = a[0].Resolve(dims)
	}
	return m, n, k
}

// saved returns the bytes of x that the products share.
func (p *down) saved(r *Run) (read, written int) {
	x := p.list[0].In[0]
	if p.grad {
		x = p.list[0].In[1]
	}
	return (len(p.list) - 1) * x.Bytes(r.Dims), 0
}

func (p *down) fill(r *Run) {
	m, n, k := p.sizes(r.Dims)
	down, across := blocks(m, p.tileM), blocks(n, p.tileN)
	parts := partsOf(len(p.list)*down*across, blocks(k, stageK))
	size, adds := m*n, hasAddend(p.list[0])
	rowA, rowB, dropped := k, k, 0
	if p.grad {
		rowA, rowB, dropped = m, n, flagsShift
	}
	var a, b, out, to, addend [mostDowns]Pointer
	var flags, stream [mostDowns]int
	for i, l := range p.list {
		a[i], b[i], out[i], addend[i], stream[i] = r.at(l.In[0]), r.at(l.In[1]), r.at(l.Out[0]), r.addend(l), int(l.Attr.(ir.DropoutAttr).Stream)
		flags[i] = operandFlags(a[i], l.In[0].Stored(), rowA, !p.grad) | operandFlags(b[i], l.In[1].Stored(), rowB, !p.grad)<<flagsShift
		if flags[i]>>dropped&3 == wayCopy { // of the operand with dropout, which is not copied unchanged
			flags[i] += (wayWide - wayCopy) << dropped
		}
		to[i] = out[i]
		if adds { // the sum adds it, even to a single part
			to[i] = r.Scratch + Pointer(4*i*size)
		}
	}
	drop := p.list[0].Attr.(ir.DropoutAttr)
	p.main.grid(down*across*parts, len(p.list), 1).pointers(&outNames, to).pointer("partial", r.Scratch).pointers(&aNames, a).pointers(&bNames, b)
	p.main.int("m", m).int("n", n).int("k", k).ints(&flagsNames, flags).int("tiles_m", down).int("tiles_n", across).int("parts", parts)
	p.main.pointer("key", r.at(p.list[0].In[2])).ints(&streamNames, stream).int("threshold", int(philox.Threshold(drop.P))).float("scale", float32(1/(1-drop.P)))
	p.sum.skip()
	if parts > 1 || adds {
		p.sum.grid(blocks(size, 256), len(p.list), 1).long("size", size).int("parts", parts).pointers(&outNames, out).pointer("partial", r.Scratch).pointers(&addendNames, addend)
	}
}

// Names of the arguments that each product has.
var (
	outNames    = [mostDowns]string{"out", "out1", "out2"}
	aNames      = [mostDowns]string{"a", "a1", "a2"}
	bNames      = [mostDowns]string{"b", "b1", "b2"}
	addendNames = [mostDowns]string{"addend", "addend1", "addend2"}
	flagsNames  = [mostDowns]string{"flags", "flags1", "flags2"}
	streamNames = [mostDowns]string{"stream", "stream1", "stream2"}
)

// pointers adds an argument for each product.
func (k *Kernel) pointers(names *[mostDowns]string, of [mostDowns]Pointer) *Kernel {
	for i, name := range names {
		k.pointer(name, of[i])
	}
	return k
}

// ints adds an argument for each product.
func (k *Kernel) ints(names *[mostDowns]string, of [mostDowns]int) *Kernel {
	for i, name := range names {
		k.int(name, of[i])
	}
	return k
}

// takesInputGrad accepts float32 factors, and dropout with one key for all elements.
func takesInputGrad(_ any, in []ir.Type) bool {
	return in[0].DType == tensor.F32 && in[1].DType == tensor.F32 && in[2].Rank() == 1
}

// storesInputGrad reports whether the kernels read or write an operand as bfloat16: the addend and the result.
func storesInputGrad(_ any, _ []ir.Type, at ir.Place) bool { return at.Out || at.Index == 3 }

// An input gradient's block computes this number of rows and columns.
const inputGradRows, inputGradColumns = 64, 128

func prepareLoRADownInputGrad(c *compiler, l *ir.Launch) (step, error) {
	dh, a, key, out := l.In[0], l.In[1], l.In[2], l.Out[0]
	attr, rounds := roundingOf(l)
	d := attr.(ir.DropoutAttr)
	stored := narrow(out) | bit(rounds)<<2
	if hasAddend(l) {
		stored |= narrow(out, l.In[3])
	}
	k, err := c.kernel("lora_input_grad", "lora_input_grad"+form(stored), 256)
	if err != nil {
		return nil, err
	}
	threshold, scale := philox.Threshold(d.P), float32(1/(1-d.P))
	return func(r *Run) {
		rows, width := r.matrix(out)
		across := blocks(width, inputGradColumns)
		k.grid(blocks(rows, inputGradRows)*across, 1, 1).pointer("dx", r.at(out))
		k.pointer("addend", r.addend(l))
		k.pointer("dh", r.at(dh)).pointer("down", r.at(a)).pointer("key", r.at(key))
		k.long("rows", rows).int("width", width).int("rank", r.axis(dh, 1)).int("across", across)
		k.int("stream", int(d.Stream)).int("threshold", int(threshold)).float("scale", scale).stored(stored)
	}, nil
}
