package cpu_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A device runs what a graph describes.
func ExampleOpen() {
	dev, err := cpu.Open(backend.Options{Threads: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	g := graph.New()
	x := g.Param("x", tensor.F32, ir.Static(2), ir.Static(2))
	in, _ := tensor.FromFloat32s([]float32{1, 2, 3, 4}, 2, 2)
	out, err := graph.Eval(context.Background(), dev, []graph.Tensor{x.MatMulT(x)}, map[string]*tensor.Tensor{"x": &in}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out[0].Float32s())
	// Output: [5 11 11 25] <nil>
}
