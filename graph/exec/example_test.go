package exec_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A plan shows what will run and how much memory it takes, without a device.
func ExamplePlan() {
	g := ir.New()
	f32 := func(dims ...int) ir.Type { return ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(dims...)} }
	x, w := g.Param("x", f32(8, 16)), g.Param("w", f32(16, 16))
	y := g.Add(x, g.Scale(g.Linear(g.Unary(ir.Tanh, x), w, 0), 0.5))
	p, err := exec.Plan(g, exec.Spec{Results: []exec.Result{{Name: "y", Value: y}}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p)
	// Output:
	// arg 0 x f32[8,16]
	// arg 1 w f32[16,16]
	// arg 2 y f32[8,16] written
	// arena 512
	// @0:f32[8,16] = Unary{Tanh} $0:f32[8,16]
	// $2:f32[8,16] = Gemm{NT·0.5 C} @0:f32[8,16], $1:f32[16,16], $0:f32[8,16]
}
