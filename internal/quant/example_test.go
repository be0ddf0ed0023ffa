package quant_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// This example quantizes weights to 4 bits: a block of 64 takes 36 bytes.
func ExampleQuantize() {
	weights := make([]float32, 64)
	for i := range weights {
		weights[i] = float32(i) / 63
	}
	blocks := make([]byte, tensor.NF4.Bytes(len(weights)))
	if err := quant.Quantize(blocks, weights, tensor.NF4); err != nil {
		fmt.Println(err)
		return
	}
	some := make([]float32, 4)
	if err := quant.Dequantize(some, blocks, 30, tensor.NF4); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(blocks), weights[30:34], some)
	// Output:
	// 36 [0.47619048 0.4920635 0.50793654 0.52380955] [0.44070983 0.44070983 0.562617 0.562617]
}
