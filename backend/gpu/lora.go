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

// down is a product with dropout on one operand: h = dropout(x)·Aᵀ, or, for the
// gradient, dA = dhᵀ·dropout(x).
type down struct {
	l              *ir.Launch
	a, b, key, out ir.Ref
	grad           bool
	dropout        ir.DropoutAttr
	main, sum      *Kernel
	tileM, tileN   int
}

// storesDown reports whether the kernels read an operand as bfloat16.
func storesDown(_ any, _ []ir.Type, at ir.Place) bool { return !at.Out && at.Index < 2 }

// storesDownGrad reports whether the kernels read an operand as bfloat16: x, not the gradient of h, which is small.
func storesDownGrad(_ any, _ []ir.Type, at ir.Place) bool { return !at.Out && at.Index == 1 }

func prepareLoRADown(c *compiler, l *ir.Launch) (step, error) { return prepareDown(c, l, false) }

func prepareLoRADownGrad(c *compiler, l *ir.Launch) (step, error) { return prepareDown(c, l, true) }

func prepareDown(c *compiler, l *ir.Launch, grad bool) (step, error) {
	p := &down{l: l, a: l.In[0], b: l.In[1], key: l.In[2], out: l.Out[0], grad: grad, dropout: l.Attr.(ir.DropoutAttr), tileM: 64, tileN: 64}
	name, threads := "lora_down", 256
	if grad {
		name += "_grad"
	}
	switch {
	case c.target.Precision == backend.BF16:
		name, threads = name+"_mma", 128
	case p.rank(c.dims) > thinRank:
		name += "_f32_64"
	case grad:
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
	if p.sum, err = c.kernel("gemm_mma", "gemm_sum", 256); err != nil {
		return nil, err
	}
	m, n, k := p.sizes(c.dims)
	bytes := partial(m*n, blocks(k, stageK))
	if hasAddend(l) {
		bytes = max(bytes, 4*m*n)
	}
	c.reserve(bytes)
	return p.fill, nil
}

func (p *down) rank(dims []int) int {
	m, n, _ := p.sizes(dims)
	if p.grad {
		return m
	}
	return n
}

// sizes returns the sizes of the output (m, n) and of the long axis (k).
func (p *down) sizes(dims []int) (m, n, k int) {
	m, n, k = p.out.Type.Shape[0].Resolve(dims), p.out.Type.Shape[1].Resolve(dims), p.a.Type.Shape[1].Resolve(dims)
	if p.grad {
		k = p.a.Type.Shape[0].Resolve(dims)
	}
	return m, n, k
}

func (p *down) fill(r *Run) {
	m, n, k := p.sizes(r.Dims)
	down, across := blocks(m, p.tileM), blocks(n, p.tileN)
	parts := partsOf(down*across, blocks(k, stageK))
	a, b, rowA, rowB := r.at(p.a), r.at(p.b), k, k
	if p.grad {
		rowA, rowB = m, n
	}
	flags := operandFlags(a, p.a.Stored(), rowA, !p.grad) | operandFlags(b, p.b.Stored(), rowB, !p.grad)<<flagsShift
	dropped := 0 // shift of the flags of the operand with dropout, which is not copied unchanged
	if p.grad {
		dropped = flagsShift
	}
	if flags>>dropped&3 == wayCopy {
		flags += (wayWide - wayCopy) << dropped
	}
	out, addend := r.at(p.out), r.addend(p.l)
	if addend != 0 { // the sum adds it, even to a single part
		out = r.Scratch
	}
	p.main.grid(down*across*parts, 1, 1).pointer("out", out).pointer("partial", r.Scratch).pointer("a", a).pointer("b", b)
	p.main.int("m", m).int("n", n).int("k", k).int("flags", flags).int("tiles_m", down).int("tiles_n", across).int("parts", parts)
	p.main.pointer("key", r.at(p.key)).int("stream", int(p.dropout.Stream)).int("threshold", int(philox.Threshold(p.dropout.P))).float("scale", float32(1/(1-p.dropout.P)))
	p.sum.skip()
	if parts > 1 || addend != 0 {
		sumParts(p.sum, r, p.out, m*n, n, 1, parts, 0).pointer("bias", 0).pointer("addend", addend)
	}
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
	dh, a, key, out, d := l.In[0], l.In[1], l.In[2], l.Out[0], l.Attr.(ir.DropoutAttr)
	stored := narrow(out)
	if hasAddend(l) {
		stored = narrow(out, l.In[3])
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
