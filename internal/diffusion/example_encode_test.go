package diffusion_test

import (
	"context"
	"fmt"
	"os"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/internal/diffusion"
)

// A caption is encoded by the text encoder of a pipeline, which is a folder of diffusers.
func ExamplePipeline_OpenEncoder() {
	dir, err := os.MkdirTemp("", "pipeline")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for from, to := range map[string]string{"testdata/prompts/zimage": dir, "testdata/prompts/tokenizer": dir + "/tokenizer"} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := encode(dir, "a photo of a cat"); err != nil {
		fmt.Println(err)
	}
	// Output: 20 tokens of 8 features
}

func encode(dir, text string) error {
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		return err
	}
	p, err := diffusion.Open(dir)
	if err != nil {
		return err
	}
	e, err := p.OpenEncoder(context.Background(), dev)
	if err != nil {
		return err
	}
	defer e.Close()
	prompt, err := e.Encode(context.Background(), text)
	if err != nil {
		return err
	}
	fmt.Println(len(prompt.Values)/prompt.Features, "tokens of", prompt.Features, "features")
	return nil
}
