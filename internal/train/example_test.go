package train_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// Fine-tune a tiny model on three rows and look at what is left.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	rows := `{"prompt": "one", "completion": " two"}` + "\n" + `{"prompt": "two", "completion": " three"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(rows), 0o666); err != nil {
		fmt.Println(err)
		return
	}
	c := config.Default()
	c.Model = "../../testdata/lm/llama/model"
	c.OutputDir = filepath.Join(dir, "output")
	c.Data.Train = []string{filepath.Join(dir, "rows.jsonl")}
	c.Steps, c.BatchSize, c.LearningRate, c.Schedule = 20, 2, 0.01, "constant"

	r, err := train.New(context.Background(), c, train.Observer{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	s, err := r.Train(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	files, _ := filepath.Glob(filepath.Join(s.Adapter, "*"))
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	fmt.Println("loss fell:", s.LastLoss < s.FirstLoss)
	// Output:
	// README.md
	// adapter_config.json
	// adapter_model.safetensors
	// tokenizer.json
	// tokenizer_config.json
	// loss fell: true
}
