package weights_test

import (
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/weights"
)

// This example opens a model in any supported format.
func ExampleOpen() {
	s, err := weights.Open("../../testdata/lm/qwen2/model-sharded")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	fmt.Println(s.Len(), "tensors in", len(s.Files()), "files of", s.Formats())
	// Output:
	// 26 tensors in 5 files of [safetensors]
}
