package config_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/train/config"
)

func Example() {
	file := []byte(`
model: meta-llama/Llama-3.2-1B
data: {train: train.jsonl, max_length: 160}
adapter: {r: 16, lora_alpha: 32, target_modules: all-linear}
learning_rate: 3e-3
`)
	c, err := config.Parse("run.yaml", file, "batch_size=16", "steps=300")
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Adapter.R, c.Adapter.TargetModules.Expr, c.BatchSize, c.Steps, c.Schedule)

	_, err = config.Parse("run.yaml", append(file, "dropout: 0.1\n"...))
	fmt.Println(err)
	// Output:
	// 16 all-linear 16 300 linear
	// run.yaml:6: dropout: unknown key, here it is called "adapter.lora_dropout"
}
