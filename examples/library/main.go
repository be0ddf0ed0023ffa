// Command library fine-tunes an adapter from Go: load, train, save.
//
//	go run ./examples/library
package main

import (
	"context"
	"fmt"
	"log"

	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/train"
	"github.com/lorafuse/lorafuse/train/config"
)

func main() {
	c := config.Default()
	c.Model = "examples/godoc/model" // a folder, or owner/name on the Hugging Face hub
	c.Data.Train = config.Strings{"examples/godoc/train.jsonl"}
	c.Data.MaxLength = 160
	c.Adapter.R, c.Adapter.LoraAlpha, c.Adapter.TargetModules.Expr = 8, 16, "all-linear"
	c.BatchSize, c.Steps, c.LearningRate = 4, 20, 3e-3
	c.OutputDir = "examples/library/output"

	run, err := train.New(context.Background(), c, train.Observer{Step: func(s train.Report) {
		fmt.Printf("step %2d  loss %.3f\n", s.Step, s.Loss)
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	s, err := run.Train(context.Background()) // saves what PEFT loads
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("adapter:", s.Adapter)
}
