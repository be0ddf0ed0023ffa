package ir

import "fmt"

// Conv2DAttr holds the stride of a convolution and the number of zero pixels around x.
type Conv2DAttr struct {
	Stride                   int
	Top, Left, Bottom, Right int
	HasBias                  bool
}

// Out returns the height and width of the result for images of h by w and a kernel of kh by kw.
func (a Conv2DAttr) Out(h, w, kh, kw int) (int, int) {
	return (a.Top+h+a.Bottom-kh)/a.Stride + 1, (a.Left+w+a.Right-kw)/a.Stride + 1
}

// conv2DDoc describes Conv2D. Channels are last, so each pixel is a row: a 1×1 kernel is one matrix product, a 3×3
// kernel the sum of nine products of shifted rows. The channels of the weight are last too, so that a row of the kernel
// and the pixels it is multiplied with are both contiguous.
const conv2DDoc = "bias + Σ over ky, kx, c of x[b, y·stride+ky−top, x·stride+kx−left, c] · w[o,ky,kx,c], zero outside of x: f32 images [b,h,w,c], " +
	"a weight [out,kh,kw,c] and perhaps a bias [out] give f32 [b,h',w',out]"

var _ = define(Conv2D, OpDef{Name: "Conv2D", Doc: conv2DDoc,
	Infer: inferConv2D,
	// There is one product per pixel of the kernel. The products of a kernel row share a Gemm.
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, out := attr.(Conv2DAttr), g.Type(in[1]).Shape[0]
		ws, b := g.Type(in[1]).Shape, g.Type(in[0]).Shape[0]
		oh, ow := a.outOf(g.Type(in[0]).Shape, ws)
		x := g.padAxis(in[0], 1, a.Top, ws[1].N-1+a.Stride*oh)
		x = g.padAxis(x, 2, a.Left, ws[2].N-1+a.Stride*ow)
		var y, bias Value
		if a.HasBias {
			bias = in[2]
		}
		for ky := range ws[1].N {
			rows, w := g.every(x, 1, ky, oh, a.Stride), g.Slice(in[1], 1, ky, ky+1)
			var ps []Product
			for kx := range ws[2].N {
				pixels := g.every(rows, 2, kx, ow, a.Stride)
				tap := g.Reshape(g.Slice(w, 2, kx, kx+1), Shape{out, ws[3]})
				ps = append(ps, Product{pixels, tap, false, true, 1})
				if len(ps) == MaxProducts || kx == ws[2].N-1 {
					y = g.Gemm(g.asMatrices(ps), bias, y)
					ps, bias = nil, 0
				}
			}
		}
		return []Value{g.Reshape(y, Shape{b, Static(oh), Static(ow), out})}
	},
	Reference: conv2DReference,
	Flops: func(_ any, in, outs []Type, dims []int) int {
		return 2 * outs[0].Shape.Elements(dims) * in[1].Shape[1:].Elements(dims)
	},
})

func inferConv2D(attr any, in []Type) ([]Type, error) {
	a := attr.(Conv2DAttr)
	if want := 2 + boolIndex(a.HasBias); len(in) != want {
		return nil, arity(want, in)
	}
	x, w := in[0], in[1]
	if x.Rank() != 4 || !x.Equal(f32(x.Shape)) || !isFixed(x.Shape[1:]) {
		return nil, fmt.Errorf("expected f32 images [b,h,w,c] of fixed sizes")
	}
	if w.Rank() != 4 || !isFactor(w.DType) || !isFixed(w.Shape) || w.Shape[3] != x.Shape[3] {
		return nil, fmt.Errorf("expected a float weight [out,kh,kw,%v] of fixed sizes", x.Shape[3])
	}
	if a.HasBias && !in[2].Equal(f32(w.Shape[:1])) {
		return nil, fmt.Errorf("bias %v, expected %v", in[2], f32(w.Shape[:1]))
	}
	if a.Stride < 1 || min(a.Top, a.Left, a.Bottom, a.Right) < 0 {
		return nil, fmt.Errorf("stride %d, zeros above %d, left %d, below %d, right %d", a.Stride, a.Top, a.Left, a.Bottom, a.Right)
	}
	if a.Top+x.Shape[1].N+a.Bottom < w.Shape[1].N || a.Left+x.Shape[2].N+a.Right < w.Shape[2].N {
		return nil, fmt.Errorf("a window of %v by %v is larger than the image", w.Shape[1], w.Shape[2])
	}
	oh, ow := a.outOf(x.Shape, w.Shape)
	return []Type{f32(Shape{x.Shape[0], Static(oh), Static(ow), w.Shape[0]})}, nil
}

// outOf returns the height and width of the result for images x and a weight w.
func (a Conv2DAttr) outOf(x, w Shape) (int, int) {
	return a.Out(x[1].N, x[2].N, w[1].N, w[2].N)
}

// isFixed reports whether all axes have fixed, non-zero sizes.
func isFixed(s Shape) bool {
	for _, d := range s {
		if d.Var != 0 || d.N == 0 {
			return false
		}
	}
	return true
}

// padAxis pads x with zeros along a fixed axis: before zeros in front, and as many after it as make n elements.
func (g *Graph) padAxis(x Value, axis, before, n int) Value {
	t := g.Type(x)
	zeros := func(n int) Value {
		s := append(Shape{}, t.Shape...)
		s[axis] = Static(n)
		return g.Const(0, f32(s))
	}
	var all []Value
	if before > 0 {
		all = append(all, zeros(before))
	}
	all = append(all, x)
	if after := n - before - t.Shape[axis].N; after > 0 {
		all = append(all, zeros(after))
	}
	return g.Concat(axis, all...)
}

// every selects n elements of a fixed axis of images, from first in steps of stride.
func (g *Graph) every(x Value, axis, first, n, stride int) Value {
	x = g.Slice(x, axis, first, first+n*stride)
	if stride == 1 {
		return x
	}
	s := append(Shape{}, g.Type(x).Shape...)
	s[axis] = Static(n)
	before, after := Dim{n * s[0].N, s[0].Var}, 1
	if axis == 2 {
		before.N *= s[1].N
	}
	for _, d := range s[axis+1:] {
		after *= d.N
	}
	x = g.Slice(g.Reshape(x, Shape{before, Static(stride), Static(after)}), 1, 0, 1)
	return g.Reshape(x, s)
}

// asMatrices reshapes the first factors to matrices with a row per pixel.
func (g *Graph) asMatrices(ps []Product) []Product {
	for i, p := range ps {
		s := g.Type(p.A).Shape
		ps[i].A = g.Reshape(p.A, Shape{{s[0].N * s[1].N * s[2].N, s[0].Var}, s[3]})
	}
	return ps
}

func conv2DReference(attr any, in, outs []*Host) {
	a, x, w, o := attr.(Conv2DAttr), in[0], in[1], outs[0]
	each(o.Shape, func(i int, at []int) {
		sum := 0.0
		if a.HasBias {
			sum = in[2].Data[at[3]]
		}
		for ky := range w.Shape[1] {
			for kx := range w.Shape[2] {
				y, z := at[1]*a.Stride+ky-a.Top, at[2]*a.Stride+kx-a.Left
				if y < 0 || y >= x.Shape[1] || z < 0 || z >= x.Shape[2] {
					continue
				}
				c := x.Shape[3]
				pixel := x.Data[((at[0]*x.Shape[1]+y)*x.Shape[2]+z)*c:]
				tap := w.Data[((at[3]*w.Shape[1]+ky)*w.Shape[2]+kx)*c:]
				for j := range c {
					sum += pixel[j] * tap[j]
				}
			}
		}
		o.Data[i] = sum
	})
}

// Conv2D convolves images x [b,h,w,c] with w [out,kh,kw,c]. bias may be zero; a.HasBias is set accordingly.
func (g *Graph) Conv2D(x, w, bias Value, a Conv2DAttr) Value {
	in := []Value{x, w}
	if a.HasBias = bias != 0; a.HasBias {
		in = append(in, bias)
	}
	return g.Apply(Conv2D, a, in...)
}

// Upsample enlarges images x [b,h,w,c] by an integer factor, with nearest-neighbour interpolation.
func (g *Graph) Upsample(x Value, times int) Value {
	t := g.Type(x)
	if x == 0 || t.Rank() != 4 || !isFixed(t.Shape[1:]) || times < 1 {
		if x != 0 {
			g.Fail(fmt.Errorf("Upsample of %v by %d, expected images [b,h,w,c] of fixed sizes", t, times))
		}
		return 0
	}
	b, h, w, c := t.Shape[0], t.Shape[1].N, t.Shape[2].N, t.Shape[3].N
	repeat := func(x Value, rows Dim, width int) Value {
		x = g.Reshape(x, Shape{rows, Static(1), Static(width)})
		return g.Broadcast(x, Shape{rows, Static(times), Static(width)})
	}
	x = repeat(x, Dim{b.N * h * w, b.Var}, c)
	x = repeat(x, Dim{b.N * h, b.Var}, times*w*c)
	return g.Reshape(x, Shape{b, Static(times * h), Static(times * w), Static(c)})
}
