package vae

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// image is a tensor [1, h, w, c].
type image struct {
	graph.Tensor
	h, w, c int
}

// net builds a part of an autoencoder. Its weight names begin with prefix.
type net struct {
	b      *nn.Builder
	prefix string
}

// sub returns the net of a submodule.
func (n net) sub(format string, args ...any) net {
	return net{n.b, n.prefix + fmt.Sprintf(format, args...) + "."}
}

// param returns a tensor of the checkpoint.
func (n net) param(name string, shape ...int) graph.Tensor {
	return n.b.Frozen(n.prefix+name, shape...)
}

// vector returns a vector as f32. In the checkpoint it may have trailing axes of size 1.
func (n net) vector(name string, shape ...int) graph.Tensor {
	return n.param(name, shape...).Cast(tensor.F32).Reshape(ir.Static(shape[0]))
}

// Attributes of 3×3 convolutions: around has stride 1 and padding 1 on all sides, half has
// stride 2 and pads only the bottom and the right.
var (
	around = ir.Conv2DAttr{Stride: 1, Top: 1, Left: 1, Bottom: 1, Right: 1}
	half   = ir.Conv2DAttr{Stride: 2, Bottom: 1, Right: 1}
)

// conv applies a convolution with the weight [out, in, 3, 3] called name.
func (n net) conv(name string, x image, out int, a ir.Conv2DAttr) image {
	w := n.param(name+".weight", out, x.c, 3, 3).Transpose(0, 2, 3, 1)
	return n.window(name, x, w, out, a)
}

// frameConv applies a convolution with a weight [out, in, 3, 3, 3] over three frames to an
// image that is the first frame. The frames before it are zeros, so only the last third of
// the weight counts.
func (n net) frameConv(name string, x image, out int) image {
	w := n.param(name+".weight", out, x.c, 3, 9).Slice(2, 2, 3)
	w = w.Reshape(ir.Static(out), ir.Static(x.c), ir.Static(3), ir.Static(3)).Transpose(0, 2, 3, 1)
	return n.window(name, x, w, out, around)
}

// window applies a convolution with w [out, 3, 3, in], which is computed once from the
// checkpoint.
func (n net) window(name string, x image, w graph.Tensor, out int, a ir.Conv2DAttr) image {
	w = n.b.Precompute(n.prefix+name+".weight", w)
	y := x.Conv2D(w, n.vector(name+".bias", out), a)
	h, width := a.Out(x.h, x.w, 3, 3)
	return image{y, h, width, out}
}

// pointConv applies a convolution with the weight [out, in, 1, 1], computed as a matrix
// multiplication.
func (n net) pointConv(name string, x image, out int) image {
	w := n.param(name+".weight", out, x.c, 1, 1).Reshape(ir.Static(out), ir.Static(x.c))
	y := x.rows().Linear(w, n.vector(name+".bias", out))
	return image{y, x.h, x.w, out}.pixels()
}

// linear multiplies the rows x [n, c] by the weight [c, c] called name.
func (n net) linear(name string, x graph.Tensor, c int) graph.Tensor {
	return x.Linear(n.param(name+".weight", c, c), n.vector(name+".bias", c))
}

// rows returns x as [h·w, c].
func (x image) rows() graph.Tensor { return x.Reshape(ir.Static(x.h*x.w), ir.Static(x.c)) }

// pixels is the inverse of rows.
func (x image) pixels() image {
	x.Tensor = x.Reshape(ir.ShapeOf(1, x.h, x.w, x.c)...)
	return x
}

// silu returns x·sigmoid(x).
func (x image) silu() image {
	x.Tensor = x.Activate(ir.SiLU)
	return x
}

// add returns x + y.
func (x image) add(y image) image {
	x.Tensor = x.Add(y.Tensor)
	return x
}

// twice repeats each pixel in both directions.
func (x image) twice() image { return image{x.Upsample(2), 2 * x.h, 2 * x.w, x.c} }

// attend computes single-head attention between all pixels; q, k and v are [h·w, c].
func (x image) attend(q, k, v graph.Tensor) image {
	n := ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(x.h * x.w)}
	g := x.Graph()
	lo, hi := g.Of(g.IR().Const(0, n)), g.Of(g.IR().Const(float64(x.h*x.w), n))
	x.Tensor = q.Attention(k, v, lo, hi, ir.AttentionAttr{Heads: 1, KVHeads: 1, HeadDim: x.c, Scale: float32(1 / math.Sqrt(float64(x.c)))})
	return x
}
