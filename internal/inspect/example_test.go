package inspect_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/inspect"
	"github.com/lorafuse/lorafuse/safetensors"
)

// What the first norm of a model holds.
func ExampleScan() {
	f, err := safetensors.Open("../../testdata/lm/llama/model/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	norm, err := f.Lookup("model.layers.0.input_layernorm.weight")
	if err != nil {
		log.Fatal(err)
	}
	values, err := inspect.Scan(context.Background(), []*safetensors.View{norm}, inspect.Options{})
	if err != nil {
		log.Fatal(err)
	}
	v := values[0]
	fmt.Printf("%d elements, mean %.3f ± %.3f\n", v.Elements, v.Mean, v.Std)
	fmt.Println(v.Histogram.Edges[0], v.Histogram.Counts)
	// Output:
	// 64 elements, mean 0.979 ± 0.182
	// 0.5625 [1 1 4 6 8 11 6 6 7 8 2 0 2 0 2]
}
