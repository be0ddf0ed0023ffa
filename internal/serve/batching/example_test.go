package batching_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/tokenizer"
)

// Requests with an adapter each, or none, are answered side by side: their tokens come as
// they are chosen.
func Example() {
	ctx := context.Background()
	dev, err := backend.Open(backend.CPU, backend.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Open("../../../testdata/lm/llama/model")
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	tok, err := tokenizer.Load(m.Dir)
	if err != nil {
		log.Fatal(err)
	}
	engine, err := batching.New(ctx, dev, m, batching.Options{MaxTexts: 8})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	for _, name := range []string{"lora", "dora"} {
		if _, err := engine.Adapters().Load(ctx, name, "../../../testdata/lm/llama/adapters/"+name); err != nil {
			log.Fatal(err)
		}
	}
	prompt, err := tok.Encode("The quick brown", true)
	if err != nil {
		log.Fatal(err)
	}
	names := []string{"", "lora", "dora"}
	answers := make([]string, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			r := batching.Request{Prompt: prompt, Adapter: name, Answers: []generate.GenerateOptions{{MaxNewTokens: 6, Decoder: tok.NewStream(true)}}}
			for token, err := range engine.Submit(ctx, r) {
				if err != nil {
					log.Fatal(err)
				}
				answers[i] += fmt.Sprintf("%s[%d]", token.Finish, token.ID)
			}
		})
	}
	all.Wait()
	for i, name := range names {
		fmt.Printf("%q %s\n", name, answers[i])
	}
	// Output:
	// "" [377][309][480][15][49]length[402]
	// "lora" [377][197][93][197][93]length[406]
	// "dora" [320][23][495][133][114]length[142]
}
