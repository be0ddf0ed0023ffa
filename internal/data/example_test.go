package data_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/data"
)

// letters numbers the letters of a text; 0 ends it.
type letters struct{}

func (letters) Encode(text string, _ bool) (ids []int32, err error) {
	for _, r := range text {
		ids = append(ids, r-'a'+1)
	}
	return ids, nil
}

func (letters) EOS() (int32, bool) { return 0, true }

func Example() {
	dir, err := os.MkdirTemp("", "data")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "train.jsonl")
	lines := `{"prompt": "ab", "completion": "cd"}
{"prompt": "e", "completion": "f"}
`
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		panic(err)
	}

	set, err := data.Load(context.Background(), []string{file}, data.Options{Tokenizer: letters{}, MaxLength: 16})
	if err != nil {
		panic(err)
	}
	loader, err := data.NewLoader(set, data.LoaderConfig{BatchSize: 2})
	if err != nil {
		panic(err)
	}
	batch, err := loader.Batch(0, 0)
	if err != nil {
		panic(err)
	}
	fmt.Println("tokens   ", batch.Tokens())
	fmt.Println("labels   ", batch.Labels())
	fmt.Println("positions", batch.Positions())
	fmt.Println("keys from", batch.KeyStart())
	fmt.Println("keys to  ", batch.KeyEnd())
	fmt.Println("targets of the step:", loader.LossTokens(0))
	// Output:
	// tokens    [1 2 3 4 0 5 6 0]
	// labels    [-100 3 4 0 -100 6 0 -100]
	// positions [0 1 2 3 4 0 1 2]
	// keys from [0 0 0 0 0 5 5 5]
	// keys to   [1 2 3 4 5 6 7 8]
	// targets of the step: 5
}
