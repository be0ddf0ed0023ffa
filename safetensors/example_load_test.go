package safetensors_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/safetensors"
)

func ExampleLoad() {
	model, err := safetensors.OpenModel("../testdata/lm/qwen2/model-sharded")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	views, err := model.Views()
	if err != nil {
		fmt.Println(err)
		return
	}

	// Every load reuses the memory.
	buffer, err := safetensors.NewHostBuffer(views)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buffer.Close()
	stats, err := safetensors.Load(context.Background(), views, buffer, safetensors.LoadOptions{Strategy: safetensors.Pread})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(stats.Files), "files,", stats.Bytes, "bytes, by", stats.Strategy, stats.Why)

	norm, err := buffer.Lookup("model.norm.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(norm.DType, norm.Shape, norm.Len(), "bytes")
	// Output:
	// 5 files, 428288 bytes, by pread as asked
	// F32 [64] 256 bytes
}
