package ir_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A linear layer with an adapter is one Gemm; the gradient with respect to the adapter is another. The reference
// computes both in float64.
func Example() {
	g := ir.New()
	f32 := func(dims ...int) ir.Type { return ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(dims...)} }
	x, w := g.Param("x", f32(1, 2)), g.Param("w", f32(2, 2))
	a, b := g.Param("a", f32(1, 2)), g.Param("b", f32(2, 1))

	h := g.LoRADown(x, a, 0, ir.DropoutAttr{})
	y := g.Gemm([]ir.Product{{A: x, B: w, TB: true, Alpha: 1}, {A: h, B: b, TB: true, Alpha: 2}}, 0, 0)
	grads := g.Gradients(g.SumSquares(y), []ir.Value{b}, ir.GradOptions{})

	args := map[string]*ir.Host{
		"x": {Shape: []int{1, 2}, Data: []float64{1, 2}},
		"w": {Shape: []int{2, 2}, Data: []float64{1, 0, 0, 1}},
		"a": {Shape: []int{1, 2}, Data: []float64{1, 1}},
		"b": {Shape: []int{2, 1}, Data: []float64{0.5, -0.5}},
	}
	hosts, err := g.Reference([]ir.Value{y, grads[0]}, args, g.MaxDims())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("y", hosts[0].Data, "db", hosts[1].Data)
	// Output: y [4 -1] db [48 -12]
}

// The first error is kept with the line that caused it; later operations return the zero Value.
func ExampleGraph_Err() {
	g := ir.New()
	x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(4, 6)})
	w := g.Param("w", ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(5, 7)})
	g.Softmax(g.Linear(x, w, 0))
	fmt.Println(g.Err())
	// Output: example_test.go:42: graph: Gemm[f32[4,6] f32[5,7]]: product 0: inner sizes 6 and 7 differ (f32[4,6], f32[5,7])
}
