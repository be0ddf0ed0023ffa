package ir

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// RoPETableAttr holds the scale of the cosines and sines (the attention factor of YaRN).
type RoPETableAttr struct{ Scale float32 }

// RoPEAttr holds the size of a head, the direction of rotation, and the layout of pairs. Elements j and j+d/2 of a head
// form a pair or, if Interleaved, elements 2j and 2j+1.
type RoPEAttr struct {
	HeadDim              int
	Inverse, Interleaved bool
}

var _ = define(RoPETable, OpDef{Name: "RoPETable", NoGradient: true,
	Doc: "scale·[cos, sin] of positions [n] (i32) times inverse frequencies [h] (f32): [n,2h]; the angle is rounded to f32 as PyTorch does",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if in[0].DType != tensor.I32 || in[0].Rank() != 1 || in[1].DType != tensor.F32 || in[1].Rank() != 1 || in[1].Shape[0].Var != 0 {
			return nil, fmt.Errorf("expected i32 positions [n] and f32 frequencies [h]")
		}
		return []Type{f32(Shape{in[0].Shape[0], Static(2 * in[1].Shape[0].N)})}, nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		n, h := g.Type(in[0]).Shape[0], g.Type(in[1]).Shape[0]
		angle := g.Mul(g.Reshape(g.Cast(in[0], tensor.F32), Shape{n, Static(1)}), g.Reshape(in[1], Shape{Static(1), h}))
		return []Value{g.Scale(g.Concat(1, g.Unary(Cos, angle), g.Unary(Sin, angle)), float64(attr.(RoPETableAttr).Scale))}
	},
	Reference: func(attr any, in, outs []*Host) {
		h, scale := in[1].Shape[0], float64(attr.(RoPETableAttr).Scale)
		for i, pos := range in[0].Data {
			for j, f := range in[1].Data {
				angle := float64(float32(pos) * float32(f))
				outs[0].Data[i*2*h+j] = scale * math.Cos(angle)
				outs[0].Data[i*2*h+h+j] = scale * math.Sin(angle)
			}
		}
	},
})

var _ = define(RoPE, OpDef{Name: "RoPE",
	Doc: "rotary position embedding (Su et al. 2021, arXiv 2104.09864) of x [n,heads·d] with a table [n,d] of RoPETable: in the rotate-half layout of Hugging Face, or of neighbours as diffusion transformers have it",
	Infer: func(attr any, in []Type) ([]Type, error) {
		d := attr.(RoPEAttr).HeadDim
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if d <= 0 || d%2 != 0 || !in[0].Equal(f32(in[0].Shape)) || in[0].Rank() != 2 || in[0].Shape[1].Var != 0 || in[0].Shape[1].N%d != 0 ||
			!in[1].Equal(f32(Shape{in[0].Shape[0], Static(d)})) {
			return nil, fmt.Errorf("expected f32 x [n,heads·%d] and table [n,%d]", d, d)
		}
		return in[:1], nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, s := attr.(RoPEAttr), g.Type(in[0]).Shape
		n, heads, h := s[0], Static(s[1].N/a.HeadDim), a.HeadDim/2
		// A head has two halves, or h pairs.
		head, row, axis := Shape{n, heads, Static(2), Static(h)}, Shape{n, Static(1), Static(1), Static(h)}, 2
		if a.Interleaved {
			head, row, axis = Shape{n, heads, Static(h), Static(2)}, Shape{n, Static(1), Static(h), Static(1)}, 3
		}
		x := g.Reshape(in[0], head)
		x1, x2 := g.Slice(x, axis, 0, 1), g.Slice(x, axis, 1, 2)
		cos, sin := g.Reshape(g.Slice(in[1], 1, 0, h), row), g.Reshape(g.Slice(in[1], 1, h, 2*h), row)
		if a.Inverse {
			sin = g.Unary(Neg, sin)
		}
		y1 := g.Sub(g.Mul(x1, cos), g.Mul(x2, sin))
		y2 := g.Add(g.Mul(x2, cos), g.Mul(x1, sin))
		return []Value{g.Reshape(g.Concat(axis, y1, y2), s)}
	},
	Gradient: func(b *Backward) {
		a := b.Attr.(RoPEAttr)
		if b.Needs(0) {
			a.Inverse = !a.Inverse
			b.Acc(0, b.G.Apply(RoPE, a, b.Dy(0), b.In(1)))
		}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 3 * in[0].Shape.Elements(dims) },
	InPlace: func(any, int) int { return 0 },
})

// RoPETable computes the cosines and sines of the positions.
func (g *Graph) RoPETable(positions, inverseFrequencies Value, scale float32) Value {
	return g.Apply(RoPETable, RoPETableAttr{scale}, positions, inverseFrequencies)
}

// RoPE rotates the heads of x by the angles of table.
func (g *Graph) RoPE(x, table Value, headDim int) Value {
	return g.Apply(RoPE, RoPEAttr{HeadDim: headDim}, x, table)
}

// RoPEInterleaved rotates pairs of neighbours: (a, b) = (x[2j], x[2j+1]) of a head becomes (a·cos[j] − b·sin[j],
// b·cos[j] + a·sin[j]).
func (g *Graph) RoPEInterleaved(x, table Value, headDim int) Value {
	return g.Apply(RoPE, RoPEAttr{HeadDim: headDim, Interleaved: true}, x, table)
}
