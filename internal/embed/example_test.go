package embed_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/internal/embed"
	"github.com/lorafuse/lorafuse/internal/model"
)

// A sentence-transformers folder has all settings that are needed.
func Example() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	m, err := model.Open("../../testdata/encoders/bert")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	e, err := embed.New(ctx, dev, m, nil, embed.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	vectors, err := e.Embed(ctx, []string{"A cat sat on the mat.", "Where is the nearest station?", "A cat sat on the mat."})
	if err != nil {
		fmt.Println(err)
		return
	}
	cosine := func(a, b []float32) (sum float32) {
		for i := range a {
			sum += a[i] * b[i] // of length 1
		}
		return sum
	}
	fmt.Printf("%d elements, %.2f to itself, less to another: %v\n", e.Size(), cosine(vectors[0], vectors[2]), cosine(vectors[0], vectors[1]) < 0.99)
	// Output: 24 elements, 1.00 to itself, less to another: true
}
