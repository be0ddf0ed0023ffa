package merge_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/merge"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// An adapter is merged into its model; the result is a model in bf16.
func Example() {
	m, err := model.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	adapter, err := lora.Load("../../testdata/lm/llama/adapters/lora")
	if err != nil {
		log.Fatal(err)
	}
	defer adapter.Close()
	placed, err := lora.NewPlacement(adapter.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
	if err != nil {
		log.Fatal(err)
	}
	if err := adapter.Check(placed, lora.CheckOptions{}).Err(); err != nil {
		log.Fatal(err)
	}
	parent, err := os.MkdirTemp("", "merge")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)

	dir := filepath.Join(parent, "merged")
	r, err := merge.Write(context.Background(), dir, m, adapter, placed, merge.Options{DType: tensor.BF16})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Merged, "of", r.Tensors, "tensors,", r.Bytes, "bytes in", r.Files)
	merged, err := model.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer merged.Close()
	fmt.Println(merged.Config.Architecture, merged.Parameters() == m.Parameters())
	// Output:
	// 4 of 21 tensors, 279168 bytes in [model.safetensors]
	// LlamaForCausalLM true
}
