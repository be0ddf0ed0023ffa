package layer

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// size is the size of a linear layer: m rows of k channels to n, with an adapter of rank r, or without one if r is 0.
type size struct{ m, k, n, r int }

func (z size) String() string { return fmt.Sprintf("m=%d k=%d n=%d", z.m, z.k, z.n) }

// kind describes how a layer is computed. Weights are bf16, as in files.
type kind struct {
	name      string
	precision backend.Precision
}

var kinds = []kind{{"f32 × bf16 weights", backend.F32}, {"bf16", backend.BF16}}

// scale is the scale of all adapters here.
const scale = 2

// layer has the params of a layer with its gradient.
type layer struct {
	g        *graph.Graph
	x, w, dy graph.Tensor
	a, b     graph.Tensor // of the adapter

}

func newLayer(z size) *layer {
	g := graph.New()
	l := &layer{
		g: g, x: g.Param("x", tensor.F32, ir.ShapeOf(z.m, z.k)...), w: g.Param("w", tensor.BF16, ir.ShapeOf(z.n, z.k)...),
		dy: g.Param("dy", tensor.F32, ir.ShapeOf(z.m, z.n)...),
	}
	if z.r > 0 {
		l.a, l.b = g.Param("a", tensor.F32, ir.ShapeOf(z.r, z.k)...), g.Param("b", tensor.F32, ir.ShapeOf(z.n, z.r)...)
	}
	return l
}

// frozen returns the layer without an adapter: y and dx.
func frozen(z size) program.Spec {
	l := newLayer(size{z.m, z.k, z.n, 0})
	y := l.x.Linear(l.w, graph.Tensor{})
	return program.Spec{Graph: l.g, Results: append(program.Gradients(y, l.dy, []graph.Tensor{l.x}), y)}
}

// fused returns the layer with an adapter as models build it: y, dx, dA and dB.
func fused(z size, dropout float64) program.Spec {
	l := newLayer(z)
	var key graph.Tensor
	if dropout > 0 {
		key = l.g.Of(l.g.IR().Param("key", ir.RandomKey))
	}
	h := l.x.LoRADown(l.a, key, ir.DropoutAttr{P: dropout})
	y := l.x.LoRA(l.w, graph.Tensor{}, h, l.b, scale)
	return program.Spec{Graph: l.g, Results: append(program.Gradients(y, l.dy, []graph.Tensor{l.x, l.a, l.b}), y)}
}

// unfused returns the same layer as separate products; the adapter's parts of y and dx are added to the base layer's.
func unfused(z size) program.Spec {
	l := newLayer(z)
	none := graph.Tensor{}
	product := func(x, y graph.Tensor, tx, ty bool, alpha float32, to graph.Tensor) graph.Tensor {
		return l.g.Gemm([]ir.Product{{A: x.Value(), B: y.Value(), TA: tx, TB: ty, Alpha: alpha}}, none, to)
	}
	h := product(l.x, l.a, false, true, 1, none)
	y := product(h, l.b, false, true, scale, product(l.x, l.w, false, true, 1, none))
	dh := product(l.dy, l.b, false, false, scale, none)
	dx := product(dh, l.a, false, false, 1, product(l.dy, l.w, false, false, 1, none))
	da, db := product(dh, l.x, true, false, 1, none), product(l.dy, h, true, false, scale, none)
	return program.Spec{Graph: l.g, Plain: true, Results: []graph.Tensor{dx, da, db, y}}
}

// pair is (x A B)·s, the adapter alone, on d channels.
func pair(m, d, r int) program.Spec {
	g := graph.New()
	x, a, b := g.Param("x", tensor.F32, ir.ShapeOf(m, d)...), g.Param("a", tensor.F32, ir.ShapeOf(d, r)...), g.Param("b", tensor.F32, ir.ShapeOf(r, d)...)
	return program.Spec{Graph: g, Results: []graph.Tensor{x.MatMul(a).MatMul(b).Scale(scale)}}
}
