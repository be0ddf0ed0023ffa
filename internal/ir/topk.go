package ir

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// TopKAttr holds the number of elements selected per row.
type TopKAttr struct{ K int }

const topKDoc = "the k largest elements along the last axis, largest first, and as second output their indices, as i32; " +
	"of equal elements the one of lower index comes first, and a NaN counts as +Inf"

var _ = define(TopK, OpDef{Name: "TopK", Doc: topKDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		x, k := in[0], attr.(TopKAttr).K
		if x.Rank() == 0 || x.DType != tensor.F32 || x.Last().Var != 0 {
			return nil, fmt.Errorf("expected f32 x [...,n] with a fixed n")
		}
		if k < 1 || k > x.Last().N {
			return nil, fmt.Errorf("the %d largest of %d elements", k, x.Last().N)
		}
		s := slices.Clone(x.Shape)
		s[len(s)-1] = Static(k)
		return []Type{f32(s), {tensor.I32, s}}, nil
	},
	// Each round selects the first of the remaining elements that equals their maximum.
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		x, last := in[0], g.Type(in[0]).Rank()-1
		t := g.Type(x)
		one := slices.Clone(t.Shape)
		one[last] = Static(1)
		low, zero := g.Const(math.Inf(-1), t), g.Const(0, t)
		left := g.Where(g.Compare(NotEqual, x, x), g.Const(math.Inf(1), t), x)
		place := g.Iota(last, t.Shape)
		free := g.Compare(Equal, place, place)
		var values, indices []Value
		for range attr.(TopKAttr).K {
			most := g.keepReduce(ReduceMax, g.Where(free, left, low))
			first := g.Where(g.Where(free, g.Compare(Equal, left, most), free), g.Const(1, t), zero)
			at := g.Reshape(g.ArgMax(first), one)
			hit := g.Compare(Equal, place, at)
			values = append(values, g.keepReduce(ReduceSum, g.Where(hit, x, zero)))
			indices = append(indices, at)
			free = g.Where(hit, g.Compare(NotEqual, place, place), free)
		}
		return []Value{g.Concat(last, values...), g.Concat(last, indices...)}
	},
	// The gradient of each selected element flows to its index.
	Gradient: func(b *Backward) {
		g, t, dy := b.G, b.InType(0), b.Dy(0)
		if dy == 0 {
			return
		}
		last := t.Rank() - 1
		place, dx := g.Iota(last, t.Shape), g.Const(0, t)
		for j := range b.Attr.(TopKAttr).K {
			hit := g.Compare(Equal, place, g.Slice(b.Out(1), last, j, j+1))
			dx = g.Where(hit, g.Slice(dy, last, j, j+1), dx)
		}
		b.Acc(0, dx)
	},
	Flops: func(_ any, in, _ []Type, dims []int) int { return in[0].Shape.Elements(dims) },
})

// TopK returns the k largest elements of x along the last axis, and their indices.
func (g *Graph) TopK(x Value, k int) (values, indices Value) {
	values = g.Apply(TopK, TopKAttr{k}, x)
	return values, g.Out(values, 1)
}
