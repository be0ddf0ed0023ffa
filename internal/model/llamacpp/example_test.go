package llamacpp_test

import (
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
)

// This example shows where llama.cpp has a weight of a Llama.
func ExampleDescribe() {
	m, err := model.Open("../../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	d, err := llamacpp.Describe(m)
	if err != nil {
		log.Fatal(err)
	}
	parts, err := d.Parts("model.layers.1.self_attn.q_proj.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Architecture, parts[0].Name, "with reordered rows of", parts[0].Pairs, "heads")
	// Output:
	// llama blk.1.attn_q.weight with reordered rows of 4 heads
}
