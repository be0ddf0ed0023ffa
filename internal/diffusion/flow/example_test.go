package flow_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func Example() {
	s, err := flow.Parse([]byte(`{"shift": 3.0}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	levels := s.Sample(4, 0)
	fmt.Println(levels.Sigmas)
	x := []float32{1}
	for i := range levels.Steps() {
		levels.Step(x, []float32{-1}, i) // what a model would say
	}
	fmt.Println(x)
	// Output:
	// [1 0.9 0.75 0.5 0]
	// [2]
}
