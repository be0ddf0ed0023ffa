package ir

import (
	"fmt"
	"math"
)

// GroupNormAttr holds the number of groups of channels and the epsilon that is added to the variance of a group.
type GroupNormAttr struct {
	Groups int
	Eps    float32
}

const groupNormDoc = "(x − mean) · rsqrt(variance+eps) · w + b for x f32 [b,...,c] and w, b [c]: mean and variance of each sample over the channels of a " +
	"group and all axes between, the variance divided by their number (Wu and He 2018, arXiv 1803.08494)"

var _ = define(GroupNorm, OpDef{Name: "GroupNorm", Doc: groupNormDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(GroupNormAttr)
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		x := in[0]
		if x.Rank() < 2 || !x.Equal(f32(x.Shape)) || !isFixed(x.Shape[1:]) {
			return nil, fmt.Errorf("expected f32 x [b,...,c] of fixed sizes")
		}
		if a.Groups < 1 || x.Last().N%a.Groups != 0 {
			return nil, fmt.Errorf("%v channels in %d groups", x.Last(), a.Groups)
		}
		if w := f32(Shape{x.Last()}); !in[1].Equal(w) || !in[2].Equal(w) {
			return nil, fmt.Errorf("expected weight and bias %v, got %v and %v", w, in[1], in[2])
		}
		return in[:1], nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a, s := attr.(GroupNormAttr), g.Type(in[0]).Shape
		groups, size := Static(a.Groups), s[len(s)-1].N/a.Groups
		rows := 1
		for _, d := range s[1 : len(s)-1] {
			rows *= d.N
		}
		mean := func(x Value) Value {
			sum := g.Reduce(ReduceSum, g.Reduce(ReduceSum, x, 3), 1)
			return g.Scale(g.Reshape(sum, Shape{s[0], Static(1), groups, Static(1)}), 1/float64(rows*size))
		}
		x := g.Reshape(in[0], Shape{s[0], Static(rows), groups, Static(size)})
		c := g.Sub(x, mean(x))
		n := g.Mul(c, g.Unary(Rsqrt, g.AddScalar(mean(g.Mul(c, c)), float64(a.Eps))))
		return []Value{g.Add(g.Mul(g.Reshape(n, s), in[1]), in[2])}
	},
	Reference: groupNormReference,
	Flops:     func(_ any, in, _ []Type, dims []int) int { return 7 * in[0].Shape.Elements(dims) },
	InPlace:   func(any, int) int { return 0 },
})

func groupNormReference(attr any, in, outs []*Host) {
	a, x, y := attr.(GroupNormAttr), in[0].Data, outs[0].Data
	c := in[0].Shape[len(in[0].Shape)-1]
	sample, size := product(in[0].Shape[1:]), c/a.Groups
	for at := 0; at < len(x); at += sample {
		for first := 0; first < c; first += size {
			each := func(f func(i, channel int)) {
				for i := at; i < at+sample; i += c {
					for j := first; j < first+size; j++ {
						f(i+j, j)
					}
				}
			}
			n := float64(sample / a.Groups)
			mean, variance := 0.0, 0.0
			each(func(i, _ int) { mean += x[i] / n })
			each(func(i, _ int) { variance += (x[i] - mean) * (x[i] - mean) / n })
			r := 1 / math.Sqrt(variance+float64(a.Eps))
			each(func(i, j int) { y[i] = (x[i]-mean)*r*in[1].Data[j] + in[2].Data[j] })
		}
	}
}

// GroupNorm normalizes each group of channels of each sample of x [b,...,c] to mean 0 and variance 1, then multiplies
// by w and adds b.
func (g *Graph) GroupNorm(x, w, b Value, groups int, eps float32) Value {
	return g.Apply(GroupNorm, GroupNormAttr{groups, eps}, x, w, b)
}
