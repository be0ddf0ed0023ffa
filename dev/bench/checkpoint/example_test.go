package checkpoint_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
)

// What a model costs follows from its shape.
func Example() {
	s, err := checkpoint.ByName("small")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	fmt.Println(s.LinearParams(), "weights of linear layers")
	// Output:
	// small: 512×8, MLP 1408, vocabulary 8192
	// 27787264 weights of linear layers
}
