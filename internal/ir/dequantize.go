package ir

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// DequantizeAttr holds the number of rows and columns of a matrix that share a scale.
type DequantizeAttr struct{ Rows, Columns int }

const dequantizeDoc = "w · scale as f32 for w f8_e4m3 [...,r,c] and scale f32 [...,⌈r/rows⌉,⌈c/columns⌉], one number for each block of rows × columns of a matrix"

var _ = define(Dequantize, OpDef{Name: "Dequantize", Doc: dequantizeDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(DequantizeAttr)
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		w := in[0]
		if a.Rows < 1 || a.Columns < 1 {
			return nil, fmt.Errorf("blocks of %d by %d", a.Rows, a.Columns)
		}
		if w.DType != tensor.F8E4M3 || w.Rank() < 2 || w.Rank() == MaxRank || !isFixed(w.Shape) {
			return nil, fmt.Errorf("expected matrices of f8_e4m3 of fixed sizes")
		}
		if s := f32(a.Scales(w.Shape)); !in[1].Equal(s) {
			return nil, fmt.Errorf("expected scales %v, got %v", s, in[1])
		}
		return []Type{f32(w.Shape)}, nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, s := attr.(DequantizeAttr), g.Type(in[0]).Shape
		last := len(s) - 1
		scale := g.repeatElements(in[1], last-1, a.Rows, s[last-1].N)
		return []Value{g.Mul(g.Cast(in[0], tensor.F32), g.repeatElements(scale, last, a.Columns, s[last].N))}
	},
})

// Scales returns the shape of the scales of matrices of shape s.
func (a DequantizeAttr) Scales(s Shape) Shape {
	scales, last := slices.Clone(s), len(s)-1
	scales[last-1], scales[last] = Static(ceilDiv(s[last-1].N, a.Rows)), Static(ceilDiv(s[last].N, a.Columns))
	return scales
}

// Index returns the number of the scale of element i of matrices of rows by columns.
func (a DequantizeAttr) Index(rows, columns, i int) int {
	row := i / columns
	return (row/rows*ceilDiv(rows, a.Rows)+row%rows/a.Rows)*ceilDiv(columns, a.Columns) + i%columns/a.Columns
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }

// repeatElements repeats each element of an axis count times, and keeps the first n of them.
func (g *Graph) repeatElements(x Value, axis, count, n int) Value {
	s := g.Type(x).Shape
	repeated, all := slices.Insert(slices.Clone(s), axis+1, Static(count)), slices.Clone(s)
	all[axis] = Static(s[axis].N * count)
	x = g.Broadcast(g.Reshape(x, slices.Insert(slices.Clone(s), axis+1, Static(1))), repeated)
	return g.Slice(g.Reshape(x, all), axis, 0, n)
}

// Dequantize widens matrices w [..., r, c] in 8-bit floats to f32 and multiplies each block of a.Rows by a.Columns by its
// scale. Blocks end with the matrix.
func (g *Graph) Dequantize(w, scale Value, a DequantizeAttr) Value {
	return g.Apply(Dequantize, a, w, scale)
}
