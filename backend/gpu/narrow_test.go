package gpu

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// backward returns the launches of the backward pass of three linears with adapters, whose gradients two launches
// change in place: rotated says of which linears.
func backward(rotated ...int) *ir.Program {
	p := &ir.Program{Bounds: make([]ir.Bound, 1)}
	place := func(d tensor.DType, sizes ...int) ir.Ref {
		r := ir.Ref{Type: ir.Type{DType: d, Shape: ir.ShapeOf(sizes...)}, Space: ir.SpaceArena, Offset: p.Arena}
		p.Arena += r.Bytes(nil)
		return r
	}
	gemm := func(out, a, b ir.Ref, ta bool) {
		attr := ir.GemmAttr{N: 1}
		attr.P[0] = ir.ProductAttr{TA: ta, Alpha: 1}
		p.Launches = append(p.Launches, ir.Launch{Op: ir.Gemm, Attr: attr, In: []ir.Ref{a, b}, Out: []ir.Ref{out}})
	}
	var rights [][2]ir.Ref
	for i := range 3 {
		dy, h := place(tensor.BF16, 1024, 512), place(tensor.F32, 1024, 16)
		if slices.Contains(rotated, i) {
			p.Launches = append(p.Launches, ir.Launch{Op: ir.Unary, Attr: ir.UnaryAttr{Fn: ir.Tanh}, In: []ir.Ref{dy}, Out: []ir.Ref{dy}})
		}
		gemm(place(tensor.F32, 512, 16), dy, h, true)
		rights = append(rights, [2]ir.Ref{dy, place(tensor.F32, 512, 16)})
	}
	for _, x := range rights {
		gemm(place(tensor.F32, 1024, 16), x[0], x[1], false)
	}
	return p
}

// narrowProducts are products of an adapter of the given rank.
func narrowProducts(b *builder, rank int) exec.Spec {
	x := b.param(tensor.BF16, 512, 256)
	product := func(x, y ir.Value, ta, tb bool) ir.Value {
		return b.Gemm([]ir.Product{{A: x, B: y, TA: ta, TB: tb, Alpha: 2}}, 0, 0)
	}
	h := b.param(tensor.F32, 512, rank)
	return results(product(x, b.param(tensor.F32, rank, 256), false, true), product(h, x, true, false), product(x, h, true, false), product(x, b.param(tensor.F32, 256, rank), false, false))
}

// TestGather: products that read the same matrices become neighbours, and launches that depend on each other keep
// their order.
func TestGather(t *testing.T) {
	target := &Target{Precision: backend.BF16, Limits: h100, Sizes: DefaultSizes()}
	for _, rotated := range [][]int{nil, {1}, {1, 2}, {0, 1, 2}} {
		p := backward(rotated...)
		got := gather(p, target)
		require.Len(t, got.Launches, len(p.Launches))
		first := slices.IndexFunc(got.Launches, func(l ir.Launch) bool { return l.Op == ir.Gemm })
		require.Equal(t, len(rotated), first, "the products follow all other launches")
		for _, l := range got.Launches[first:] {
			require.Equal(t, ir.Gemm, l.Op)
		}
	}

	// A product whose result is read in between does not move behind the reader.
	p := backward(1)
	left := p.Launches[0].Out[0]
	p.Launches = slices.Insert(p.Launches, 1, ir.Launch{Op: ir.Unary, Attr: ir.UnaryAttr{Fn: ir.Tanh}, In: []ir.Ref{left}, Out: []ir.Ref{left}})
	p.Launches[2].In = []ir.Ref{left} // and the next launch depends on it
	for _, pair := range ordered(p) {
		require.Contains(t, ordered(gather(p, target)), pair)
	}
}

// ordered returns the results of all pairs of launches that must keep their order.
func ordered(p *ir.Program) (list [][2]int) {
	for i := range p.Launches {
		for j := range i {
			if p.Launches[i].Conflicts(&p.Launches[j], nil) {
				list = append(list, [2]int{p.Launches[j].Out[0].Offset, p.Launches[i].Out[0].Offset})
			}
		}
	}
	return list
}
