package single_test

import (
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/single"
)

// A file may lie anywhere: where shapes do not tell all of its configuration, as of heads of
// 16, which no model has that was published, it is named.
func ExampleOpen() {
	const file = "../../../testdata/dit/flux/transformer/diffusion_pytorch_model.safetensors"
	m, err := single.Open(file, "../../../testdata/dit/flux/transformer/config.json")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	fmt.Println(m.Config.Architecture, len(m.Used()), "tensors")
	fmt.Println(m.Config.Family.(dit.Transformer).Space().Guidance)
	// Output:
	// FluxTransformer2DModel 112 tensors
	// true
}
