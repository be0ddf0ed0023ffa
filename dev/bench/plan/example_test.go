package plan_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/plan"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The sum of two vectors reads and writes 12 bytes per element.
func ExampleDevice_Count() {
	sum := plan.Program{Name: "sum", Plan: func(dev backend.Device) (*ir.Program, error) {
		g := graph.New()
		x, y := g.Param("x", tensor.F32, ir.Static(1000)), g.Param("y", tensor.F32, ir.Static(1000))
		return g.Program().Result("sum", x.Add(y)).Plan(dev.Supports)
	}}
	for _, d := range plan.Devices() {
		c, err := d.Count(sum)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(c.Device, c.Launches, c.Read, c.Written)
	}
	// Output:
	// cuda 1 8000 4000
	// metal 1 8000 4000
	// metal, bf16 1 8000 4000
}
