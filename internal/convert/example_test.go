package convert_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/convert"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// A model becomes one of half the size, in shards.
func Example() {
	model, err := weights.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	parent, err := os.MkdirTemp("", "convert")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)

	r, err := convert.Folder(context.Background(), filepath.Join(parent, "bf16"), model, convert.Options{
		DType: tensor.BF16, MaxShardSize: 200e3,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.BytesIn, "bytes are now", r.BytesOut, "in", r.Files)
	for _, c := range r.Changes {
		fmt.Printf("%v to %v: %.2g at most, in %s\n", c.From, c.To, c.MaxAbs, c.At)
	}
	// Output:
	// 558336 bytes are now 279168 in [model-00001-of-00002.safetensors model-00002-of-00002.safetensors]
	// F32 to BF16: 0.0075 at most, in model.embed_tokens.weight
}
