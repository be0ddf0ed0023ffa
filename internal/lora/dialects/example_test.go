package dialects_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// A file of kohya's trainer becomes one that diffusers loads with the same strength.
func Example() {
	model := lora.Model{Modules: []lora.Module{ // of a transformer: model.Open(dir).Modules()
		{Name: "transformer_blocks.0.attn.to_q", Kind: lora.Linear, In: 8, Out: 12},
		{Name: "transformer_blocks.0.attn.to_add_out", Kind: lora.Linear, In: 8, Out: 12},
		{Name: "transformer_blocks.1.img_mlp.net.0.proj", Kind: lora.Linear, In: 8, Out: 12},
		{Name: "transformer_blocks.1.txt_mod.1", Kind: lora.Linear, In: 8, Out: 12},
		{Name: "transformer_blocks.10.attn.add_k_proj", Kind: lora.Linear, In: 8, Out: 12},
	}}
	a, err := dialects.Read("../../../testdata/dit/lora-dialects/kohya-qwen.safetensors", model, dialects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("rank", a.Config.R, "alpha", a.Config.LoraAlpha)

	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var tensors []lora.Tensor
	for _, key := range a.Names() {
		t, _ := a.Tensor(key)
		tensors = append(tensors, lora.Tensor{Key: key, Tensor: t})
	}
	path := filepath.Join(dir, dialects.File)
	if err := dialects.Write(path, dialects.Diffusers, model, a.Config, tensors); err != nil {
		log.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(slices.Min(f.Names()))
	// Output:
	// rank 4 alpha 2
	// transformer.transformer_blocks.0.attn.to_add_out.lora_A.weight
}
