package safetensors_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/safetensors"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "adapter.safetensors")
	err = safetensors.WriteFile(path, []safetensors.Entry{
		{Name: "lora_A.weight", DType: safetensors.F32, Shape: []int{1, 2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 192}},
		{Name: "steps", DType: safetensors.I64, Data: []byte{42, 0, 0, 0, 0, 0, 0, 0}},
	}, map[string]string{"format": "pt"})
	if err != nil {
		fmt.Println(err)
		return
	}

	f, err := safetensors.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println(f.Metadata(), f.Names())

	v, err := f.Lookup("lora_A.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = v.Use(func(data []byte) error {
		values, err := safetensors.Cast[float32](data)
		fmt.Println(v.DType, v.Shape, values)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}

	_, err = f.Lookup("lora_B.weight")
	fmt.Println(errors.Is(err, safetensors.ErrNotFound))
	// Output:
	// map[format:pt] [steps lora_A.weight]
	// F32 [1 2] [1 -2]
	// true
}

func ExampleFromBytes() {
	_, err := safetensors.FromBytes([]byte("\x3d\x00\x00\x00\x00\x00\x00\x00" +
		`{"w":{"dtype":"F32","shape":[3,2],"data_offsets":[0,16]}}    ` + "0123456789abcdef"))
	fmt.Println(err)

	var format *safetensors.FormatError
	if errors.As(err, &format) {
		fmt.Println(format.Tensor, errors.Is(err, safetensors.ErrSize))
	}
	// Output:
	// safetensors: tensor "w": size of the data is not that of the shape: found 16 bytes, expected 24 bytes for F32[3,2]
	// w true
}

func ExampleOpenModel() {
	model, err := safetensors.OpenModel("../testdata/lm/qwen2/model-sharded")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	fmt.Println(len(model.Files()), "shards,", model.Len(), "tensors")

	embedding, err := model.Lookup("model.embed_tokens.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(embedding.DType, embedding.Shape)
	rows, err := embedding.Rows(10, 12)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rows.Shape, rows.Len(), "bytes")
	// Output:
	// 5 shards, 26 tensors
	// F32 [512 64]
	// [2 64] 512 bytes
}
