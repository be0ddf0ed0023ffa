package gpu_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A program of one product, as a GPU would launch it for three rows.
func ExampleNew() {
	g := ir.New()
	n := g.Bound("rows", 100)
	x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(64)}})
	w := g.Param("w", ir.Type{DType: tensor.BF16, Shape: ir.ShapeOf(32, 64)})
	p, err := exec.Plan(g, exec.Spec{Results: []exec.Result{{Name: "y", Value: g.Linear(x, w, 0)}}}, gpu.Supports)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := gpu.New(p, gpu.Target{Sizes: gpu.DefaultSizes()})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan.Bind(make([]gpu.Launch, len(plan.Kernels)))
	plan.Fill(0, &gpu.Run{Args: make([]gpu.Pointer, len(p.Args)), Dims: []int{0, 3}})
	for _, k := range plan.Kernels {
		if k.Launch.Grid[0] > 0 { // others are for more rows, or for fewer
			fmt.Println(k.Name, k.Launch.Grid, k.Launch.Block, k.Launch.Count)
		}
	}
	// Output: gemv_4 [16 1 1] [256 1 1] 59
}
