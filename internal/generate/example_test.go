package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// A model with an adapter continues a text and prints it as it comes.
func Example() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	adapter, err := lora.LoadState("../../testdata/lm/llama/adapters/lora", m, m.Config.ModelType, m.Modules())
	if err != nil {
		log.Fatal(err)
	}
	tok, err := tokenizer.Load(m.Dir)
	if err != nil {
		log.Fatal(err)
	}
	g, err := generate.New(ctx, dev, m, adapter, generate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	prompt, err := tok.Encode("The quick brown", true)
	if err != nil {
		log.Fatal(err)
	}
	r, err := g.Generate(ctx, prompt, generate.GenerateOptions{MaxNewTokens: 6, Decoder: tok.NewStream(true)}, func(t generate.Token) error {
		fmt.Printf("%d %q\n", t.ID, t.Text)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Finish, len(r.IDs))
	// Output:
	// 377 "and"
	// 197 "\x05"
	// 93 "z"
	// 197 "\x05"
	// 93 "z"
	// 406 "rit"
	// length 6
}

// An answer is made of logits that come from anywhere, here from a model that always
// takes the next letter for the most likely one.
func ExampleAnswer() {
	const vocab, end = 6, 5
	a, err := generate.NewAnswer(vocab, []int32{end}, 10, []int32{0}, generate.GenerateOptions{Logprobs: true})
	if err != nil {
		log.Fatal(err)
	}
	for a.Finish() == "" {
		tokens := a.Tokens()
		logits := make([]float32, vocab)
		logits[tokens[len(tokens)-1]+1] = 2
		token, err := a.Next(logits)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %.3f\n", token.ID, token.Logprobs.Logprob)
	}
	fmt.Println(a.Finish(), a.Tokens())
	// Output:
	// 1 -0.517
	// 2 -0.517
	// 3 -0.517
	// 4 -0.517
	// 5 -0.517
	// eos [0 1 2 3 4 5]
}

// Adapters take turns on a model that stays where it is.
func ExampleGenerator_SetAdapter() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	g, err := generate.New(ctx, dev, m, nil, generate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	for _, name := range []string{"", "lora", "dora", ""} {
		var adapter *lora.State // none
		if name != "" {
			if adapter, err = lora.LoadState("../../testdata/lm/llama/adapters/"+name, m, m.Config.ModelType, m.Modules()); err != nil {
				log.Fatal(err)
			}
		}
		if err := g.SetAdapter(ctx, adapter); err != nil {
			log.Fatal(err)
		}
		r, err := g.Generate(ctx, []int32{1, 2, 3}, generate.GenerateOptions{MaxNewTokens: 4}, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q %v\n", name, r.IDs)
	}
	// Output:
	// "" [281 245 377 186]
	// "lora" [103 225 225 225]
	// "dora" [281 154 235 201]
	// "" [281 245 377 186]
}
