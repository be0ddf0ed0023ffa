// Command godoc is the example of lorafuse: it teaches a small language model
// to write Go doc comments by fine-tuning a LoRA adapter on the CPU, and
// prints what the model writes before and after.
//
//	go run ./examples/godoc
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// prompts are rows of eval.jsonl, which training does not see.
var prompts = []string{
	"// package hash/fnv\nfunc New64() hash.Hash64\n// ",
	"// package encoding/json\nfunc (n Number) Float64() (float64, error)\n// ",
	"// package net\nfunc (ip IP) IsLoopback() bool\n// ",
	"// package strings\nfunc FieldsSeq(s string) iter.Seq[string]\n// ",
}

func main() {
	file := flag.String("config", "examples/godoc/train.yaml", "settings of the run, from the root of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "godoc:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file string, sets []string) error {
	c, err := config.Load(file, sets...)
	if err != nil {
		return err
	}
	// Delete the output of earlier runs.
	if err := os.RemoveAll(c.OutputDir); err != nil {
		return err
	}
	before, err := write(ctx, c.Model, "")
	if err != nil {
		return err
	}
	began := time.Now()
	loss := 0.0
	r, err := train.New(ctx, c, train.Observer{
		Note: func(text string) { fmt.Println(text) },
		Step: func(s train.Report) {
			loss += s.Loss / 20
			if s.Step%20 == 0 {
				fmt.Printf("step     %3d of %d, loss %.3f, %.0f tokens/s\n", s.Step, s.Steps, loss, s.TokensPerSecond)
				loss = 0
			}
			if s.Eval != nil {
				fmt.Printf("eval     loss %.4f after step %d\n", *s.Eval, s.Step)
			}
		},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := r.Train(ctx)
	if err != nil {
		return err
	}
	after, err := write(ctx, c.Model, s.Adapter)
	if err != nil {
		return err
	}
	for i, p := range prompts {
		fmt.Printf("\n%s\n  before: %s\n  after:  %s\n", strings.TrimSuffix(p, "\n// "), before[i], after[i])
	}
	fmt.Printf("\neval loss %.4f → %.4f in %.0f s; the adapter is in %s, the plot in %s\n",
		*s.FirstEval, *s.LastEval, time.Since(began).Seconds(), s.Adapter, s.Plot)
	return nil
}

// write continues the prompts with the model, and with an adapter if adapterDir is set.
func write(ctx context.Context, modelDir, adapterDir string) ([]string, error) {
	m, err := model.Open(modelDir)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	tok, err := tokenizer.Load(modelDir)
	if err != nil {
		return nil, err
	}
	var adapter *lora.State
	if adapterDir != "" {
		if adapter, err = lora.LoadState(adapterDir, m, m.Config.ModelType, m.Modules()); err != nil {
			return nil, err
		}
	}
	dev, err := backend.Open(backend.Auto, backend.Options{})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	g, err := generate.New(ctx, dev, m, adapter, generate.Options{MaxLength: 256})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	var out []string
	for _, p := range prompts {
		ids, err := tok.Encode(p, true)
		if err != nil {
			return nil, err
		}
		res, err := g.Generate(ctx, ids, generate.GenerateOptions{MaxNewTokens: 40}, nil)
		if err != nil {
			return nil, err
		}
		text, err := tok.Decode(res.IDs, true)
		if err != nil {
			return nil, err
		}
		line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		out = append(out, line)
	}
	return out, nil
}
