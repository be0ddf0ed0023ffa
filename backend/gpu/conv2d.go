package gpu

import (
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of kernels/cuda/conv2d.cu: a product of matrices whose first factor is gathered from
// images.

// conv2D is a convolution; large is nil if large tiles are never used.
type conv2D struct {
	a               ir.Conv2DAttr
	x, w, bias, out ir.Ref
	large, small    *Kernel
	enough          int // large tiles
}

func prepareConv2D(c *compiler, l *ir.Launch) (step, error) {
	p := &conv2D{a: l.Attr.(ir.Conv2DAttr), x: l.In[0], w: l.In[1], out: l.Out[0], enough: c.target.LargeTiles}
	if p.a.HasBias {
		p.bias = l.In[2]
	}
	var err error
	switch {
	case c.target.Precision != backend.BF16 && c.target.ExactSums:
		p.small, err = c.sharing("conv2d", "conv2d_mma_f32_64", 128, stagesBytes(smallTile))
	case c.target.Precision != backend.BF16:
		p.small, err = c.kernel("conv2d", "conv2d_f32", 256)
	default:
		p.small, err = c.sharing("conv2d", "conv2d_mma_64", 128, stagesBytes(smallTile))
		if err == nil && p.enough > 0 {
			p.large, err = c.sharing("conv2d", "conv2d_mma_128", 256, stagesBytes(largeTile))
		}
	}
	return p.fill, err
}

func (p *conv2D) fill(r *Run) {
	in, w, out := p.x.Type.Shape, p.w.Type.Shape, p.out.Type.Shape
	n, taps := w[0].N, w[1].N*w[2].N
	m, k := r.count(p.out)/n, taps*w[3].N
	main, tile := p.small, smallTile
	p.small.skip()
	if p.large != nil {
		p.large.skip()
		if m > smallTile && n > smallTile && blocks(m, largeTile)*blocks(n, largeTile) >= p.enough {
			main, tile = p.large, largeTile
		}
	}
	down, across := blocks(m, tile), blocks(n, tile)
	main.grid(down*across, 1, 1).pointer("out", r.at(p.out))
	if p.a.HasBias {
		main.pointer("bias", r.at(p.bias))
	} else {
		main.pointer("bias", 0)
	}
	weights := r.at(p.w)
	flags := operandFlags(0, tensor.F32, k, true) | operandFlags(weights, p.w.Type.DType, k, true)<<flagsShift
	main.pointer("x", r.at(p.x)).pointer("w", weights).int("m", m).int("n", n).int("k", k).int("flags", flags).int("tiles_m", down).int("tiles_n", across)
	main.int("height", in[1].N).int("width", in[2].N).int("c", in[3].N).int("out_height", out[1].N).int("out_width", out[2].N)
	main.int("kernel_width", w[2].N).int("stride", p.a.Stride).int("top", p.a.Top).int("left", p.a.Left).int("stored", narrow(p.out, p.x))
}
