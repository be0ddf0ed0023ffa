// Command library fine-tunes an adapter from Go and answers with it.
//
//	go run ./examples/library
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse"
)

func main() {
	ctx := context.Background()
	model := "examples/godoc/model" // a folder, or owner/name on the Hugging Face Hub
	tuned, err := lorafuse.FineTune(ctx, model, lorafuse.Files("examples/godoc/train.jsonl"), lorafuse.Recipe{
		OutputDir: "examples/library/output", Rank: 8, Alpha: 16, BatchSize: 4, Steps: 20, LearningRate: 3e-3, MaxLength: 160,
		OnStep: func(s lorafuse.Step) { fmt.Printf("step %2d of %d  loss %.3f\n", s.Step, s.Steps, s.Loss) },
	})
	if err != nil {
		log.Fatal(err)
	}
	m, err := lorafuse.Open(ctx, model, lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.LoadAdapter(ctx, "godoc", tuned.Adapter); err != nil { // PEFT loads it, too
		log.Fatal(err)
	}
	text, err := m.Complete(ctx, "// package os\nfunc (f *File) Close() error\n// ", lorafuse.SamplingParams{Adapter: "godoc", MaxTokens: 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}
