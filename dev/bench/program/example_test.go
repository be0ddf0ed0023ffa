package program_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A program knows what it costs before it runs.
func Example() {
	dev, err := cpu.Open(backend.Options{Threads: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	g := graph.New()
	x, w := g.Param("x", tensor.F32, ir.ShapeOf(8, 16)...), g.Param("w", tensor.BF16, ir.ShapeOf(32, 16)...)
	p, err := program.New(context.Background(), dev, program.Spec{Graph: g, Results: []graph.Tensor{x.Linear(w, graph.Tensor{})}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	fmt.Println(p.Cost())
	// Output: 8192 2560
}
