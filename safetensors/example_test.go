package safetensors_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
		safetensors.EntryOf("lora_A.weight", []float32{1, -2}, 1, 2),
		safetensors.EntryOf("steps", []int64{42}),
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
	values, err := safetensors.Read[float32](v)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.DType, v.Shape, values)

	_, err = f.Lookup("lora_B.weight")
	fmt.Println(errors.Is(err, safetensors.ErrNotFound))
	// Output:
	// map[format:pt] [steps lora_A.weight]
	// F32 [1 2] [1 -2]
	// true
}

// This example uses the file's own memory as numbers, without a copy, while the
// function runs.
func ExampleView_WithBytes() {
	model, err := safetensors.OpenModel("../testdata/lm/qwen2/model")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	v, err := model.Lookup("model.norm.weight")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = v.WithBytes(func(data []byte) error {
		weights, err := safetensors.Cast[float32](data)
		if err != nil { // misaligned, or a big-endian machine: Read copies
			if weights, err = safetensors.Read[float32](v); err != nil {
				return err
			}
		}
		fmt.Println(len(weights), "weights")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 64 weights
}

func ExampleView_Slice() {
	e := safetensors.EntryOf("table", []int32{
		0, 1, 2, 3,
		10, 11, 12, 13,
		20, 21, 22, 23,
	}, 3, 4)
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Entry{e}, nil); err != nil {
		fmt.Println(err)
		return
	}
	f, err := safetensors.OpenReaderAt(bytes.NewReader(file.Bytes()), int64(file.Len()), "memory")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	v, err := f.Lookup("table")
	if err != nil {
		fmt.Println(err)
		return
	}
	part, err := v.Slice(safetensors.Span{From: 1, To: 3}, safetensors.Span{From: 2, To: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	values, err := safetensors.Read[int32](part.View())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(part.Shape, values)
	// Output:
	// [2 2] [12 13 22 23]
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

func ExampleWriteSharded() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	limit, err := safetensors.ParseSize("1.5kB")
	if err != nil {
		fmt.Println(err)
		return
	}
	var entries []safetensors.Entry
	for _, name := range []string{"conv_in.weight", "mid.weight", "conv_out.weight"} {
		entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F16, Shape: []int{25, 10}, Write: func(w io.Writer) error {
			_, err := w.Write(make([]byte, 500)) // computed when it is written
			return err
		}})
	}
	entries = append(entries, safetensors.Entry{Name: "class_embedding", DType: safetensors.F16, Shape: []int{0}})

	vae := safetensors.Stem(safetensors.DiffusersStem)
	metadata := map[string]string{"format": "pt"}
	if err := safetensors.WriteSharded(dir, entries, limit, metadata, vae); err != nil {
		fmt.Println(err)
		return
	}
	if err := safetensors.WriteSharded(dir, entries, limit/2, metadata, vae, safetensors.Durable()); err != nil {
		fmt.Println(err)
		return
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range files {
		fmt.Println(f.Name())
	}

	model, err := safetensors.OpenModel(dir, vae)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer model.Close()
	fmt.Println(model.Len(), "tensors")
	// Output:
	// diffusion_pytorch_model-00001-of-00003.safetensors
	// diffusion_pytorch_model-00002-of-00003.safetensors
	// diffusion_pytorch_model-00003-of-00003.safetensors
	// diffusion_pytorch_model.safetensors.index.json
	// 4 tensors
}
