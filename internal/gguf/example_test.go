package gguf_test

import (
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/gguf"
)

// This example reads a tensor of 4-bit blocks.
func ExampleOpen() {
	f, err := gguf.Open("testdata/blocks.gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, err := f.Tensor("q4_k")
	if err != nil {
		log.Fatal(err)
	}
	values := make([]float32, t.Elements())
	if err := f.Float32s(values, t, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Type, t.Shape, t.Size(), "bytes,", len(values), "values")
	// Output:
	// q4_k [2 256] 288 bytes, 512 values
}
