package original_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/model/original"
)

func ExampleOf() {
	flux, _ := original.Of("FluxTransformer2DModel")
	for _, layer := range flux.Layers {
		block, ok := original.Number("single_blocks.7.linear1", layer.Name)
		if !ok {
			continue
		}
		for i := range layer.Modules {
			fmt.Println(layer.Module(i, block), layer.Shares[i])
		}
	}
	// Output:
	// single_transformer_blocks.7.attn.to_q 1
	// single_transformer_blocks.7.attn.to_k 1
	// single_transformer_blocks.7.attn.to_v 1
	// single_transformer_blocks.7.proj_mlp 4
}
