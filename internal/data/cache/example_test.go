package cache_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/tensor"
)

// encode is a fake text encoder: one token per letter.
func encode(text string) (cache.Embedding, error) {
	fmt.Printf("encode %q\n", text)
	e := cache.Embedding{}
	var values []float32
	for _, r := range text {
		values = append(values, float32(r), -1)
		e.Mask = append(e.Mask, 1)
	}
	var err error
	e.Embeds, err = tensor.FromFloat32s(values, len(e.Mask), 2)
	return e, err
}

func Example() {
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	caption := filepath.Join(dir, "001.txt")
	ctx := context.Background()
	for _, text := range []string{"cat", "cat", "a cat"} {
		if err := os.WriteFile(caption, []byte(text), 0o600); err != nil {
			panic(err)
		}
		c, err := cache.Open(filepath.Join(dir, "cache"), cache.Options{Text: cache.Recipe{Model: "letters@1"}})
		if err != nil {
			panic(err)
		}
		e, err := c.Text(ctx, caption, encode)
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Embeds.Shape, e.Mask)
		if err := c.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// encode "cat"
	// [3 2] [1 1 1]
	// [3 2] [1 1 1]
	// encode "a cat"
	// [5 2] [1 1 1 1 1]
}
