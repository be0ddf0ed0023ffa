package lorafuse_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/tensor"
)

// The model of the examples: 2.4 million parameters, trained on Go doc comments.
const tiny = "examples/godoc/model"

func Example() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, tiny, lorafuse.Options{}) // or "Qwen/Qwen2.5-0.5B-Instruct"
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	text, err := m.Complete(ctx, "// Len returns the number of", lorafuse.SamplingParams{MaxTokens: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: bytes
}

func ExampleModel_Chat() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, tiny, lorafuse.Options{ChatTemplate: "testdata/tokenizers/chat/chatml.jinja"})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	messages := []lorafuse.Message{{Role: "user", Content: "Is Go fun? Answer in JSON."}}
	schema := []byte(`{"type": "object", "properties": {"fun": {"const": true}}, "required": ["fun"], "additionalProperties": false}`)
	var answer strings.Builder
	for text, err := range m.Chat(ctx, messages, lorafuse.SamplingParams{Schema: schema}) {
		if err != nil {
			log.Fatal(err)
		}
		answer.WriteString(text)
	}
	fmt.Println(strings.ReplaceAll(answer.String(), " ", ""))
	// Output: {"fun":true}
}

// Fine-tune on rows in memory, then use the adapter.
func ExampleFineTune() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "lorafuse")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	type row struct {
		Prompt     string `json:"prompt"`
		Completion string `json:"completion"`
	}
	rows := []row{{"ping", " pong"}, {"tick", " tock"}}
	tuned, err := lorafuse.FineTune(ctx, tiny, lorafuse.Rows(rows), lorafuse.Recipe{OutputDir: dir, Steps: 30, BatchSize: 2, LearningRate: 1e-2})
	if err != nil {
		log.Fatal(err)
	}
	m, err := lorafuse.Open(ctx, tiny, lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.LoadAdapter(ctx, "clock", tuned.Adapter); err != nil {
		log.Fatal(err)
	}
	text, err := m.Complete(ctx, "tick", lorafuse.SamplingParams{Adapter: "clock", MaxTokens: 8})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tick" + text)
	// Output: tick tock
}

// Train with a loss of one's own: here that of a token is −p, not −log p.
func ExampleTrainer() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, tiny, lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	t, err := m.NewTrainer(ctx, lorafuse.TrainerOptions{Rank: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	tokens, err := m.Encode("Close closes the file.")
	if err != nil {
		log.Fatal(err)
	}
	n := len(tokens) - 1
	batch := []lorafuse.Datum{{Tokens: tokens[:n], Targets: tokens[1:]}}
	loss := func(logprobs [][]float32) (sum float64, grad [][]float32) {
		for _, row := range logprobs {
			g := make([]float32, len(row))
			for i, x := range row {
				p := math.Exp(float64(x))
				sum, g[i] = sum-p, -float32(p)
			}
			grad = append(grad, g)
		}
		return sum, grad
	}
	var losses []float64
	for range 20 {
		l, err := t.ForwardBackward(ctx, batch, loss)
		if err != nil {
			log.Fatal(err)
		}
		losses = append(losses, l)
		if err := t.Step(ctx, 1e-2); err != nil {
			log.Fatal(err)
		}
	}
	if err := t.Publish(ctx, "files"); err != nil { // m answers with it from now on
		log.Fatal(err)
	}
	fmt.Println(losses[19] < losses[0])
	// Output: true
}

func ExampleModel_Embed() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, "testdata/encoders/bert", lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	vectors, err := m.Embed(ctx, []string{"Gophers dig holes.", "A gopher digs a hole."}, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(vectors), len(vectors[0]) == len(vectors[1]))
	// Output: 2 true
}

func ExampleModel_Handler() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, tiny, lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	h, err := m.Handler(ctx, lorafuse.ServeOptions{Name: "godoc"})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(h) // or http.ListenAndServe
	defer server.Close()
	r, err := http.Post(server.URL+"/v1/completions", "application/json", strings.NewReader(`{"model": "godoc", "prompt": "// Close", "max_tokens": 1}`))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	fmt.Println(r.Status)
	// Output: 200 OK
}

func ExampleMerge() {
	dir, err := os.MkdirTemp("", "lorafuse")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	merged := filepath.Join(dir, "merged")
	base := "testdata/peft/base/small-llama"
	m, err := lorafuse.Merge(context.Background(), base, "testdata/peft/dora-rslora/adapter", merged, lorafuse.MergeOptions{DType: tensor.BF16})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Merged, "of", m.Tensors, "tensors in", m.Files)
	// Output: 6 of 21 tensors in [model.safetensors]
}

func ExampleModel_Classify() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, "testdata/encoders/bert-old", lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.LoadAdapter(ctx, "topic", "testdata/tasks/classes-bert/final"); err != nil { // with its head
		log.Fatal(err)
	}
	classes, err := m.Classify(ctx, []string{"A gopher digs a hole."}, "topic")
	if err != nil {
		log.Fatal(err)
	}
	sum := 0.0
	for _, c := range classes[0] {
		sum += c.Score
	}
	fmt.Printf("%d classes, %.3f in total\n", len(classes[0]), sum)
	// Output: 3 classes, 1.000 in total
}

// Draw with a model that has no text encoder: the prompt is a file of an encoded text.
func ExamplePipeline_Draw() {
	ctx := context.Background()
	p, err := lorafuse.OpenPipeline(ctx, "examples/pictures/model", lorafuse.Options{}) // or "black-forest-labs/FLUX.1-schnell"
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	m, err := p.Draw(ctx, "", lorafuse.DrawParams{
		Embedding: "examples/pictures/prompts/00-red-circle.safetensors", Width: 32, Height: 32, Steps: 8,
	})
	if err != nil {
		log.Fatal(err)
	}
	red, green, blue, _ := m.At(16, 16).RGBA()
	fmt.Println(m.Bounds(), red > 2*green, red > 2*blue)
	// Output: (0,0)-(32,32) true true
}

func ExampleModel_Score() {
	ctx := context.Background()
	m, err := lorafuse.Open(ctx, tiny, lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	sum := func(text string) (sum float32) {
		tokens, err := m.Score(ctx, text, "")
		if err != nil {
			log.Fatal(err)
		}
		for _, t := range tokens {
			sum += t.Logprob
		}
		return sum
	}
	fmt.Println(sum("// Close closes the file.") > sum("// Close opens the moon."))
	// Output: true
}

// Fine-tune a diffusion pipeline on a folder of images with captions. The model of this example has
// no text encoder: the encoded captions are in the cache.
func ExampleImages() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "lorafuse")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(filepath.Join(dir, "cache"), os.DirFS("examples/pictures/captions")); err != nil {
		log.Fatal(err)
	}
	tuned, err := lorafuse.FineTune(ctx, "examples/pictures/model", lorafuse.Images("examples/pictures/images"), lorafuse.Recipe{
		OutputDir: dir, Steps: 2, BatchSize: 2, Resolution: 32, LearningRate: 1e-3,
	})
	if err != nil {
		log.Fatal(err)
	}
	p, err := lorafuse.OpenPipeline(ctx, "examples/pictures/model", lorafuse.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	fmt.Println(tuned.Steps, p.LoadAdapter(ctx, "lamps", tuned.Adapter))
	// Output: 2 <nil>
}
