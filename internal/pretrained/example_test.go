package pretrained_test

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// A model with an adapter, and the tokens of a conversation.
func Example() {
	m, err := pretrained.Open("../../testdata/lm/llama/model", pretrained.Options{Adapter: "../../testdata/lm/llama/adapters/lora"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	texts, err := m.Texts("template", "../../testdata/tokenizers/chat/chatml.jinja")
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := texts.Chat(context.Background(), []chat.Message{{Role: "user", Content: "Hello"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := texts.Decode(ids, false)
	fmt.Println(m.Adapter.Config.R, err)
	fmt.Println(text)
	// Output:
	// 8 <nil>
	// <|im_start|>system
	// You are helpful.<|im_end|>
	// <|im_start|>user
	// Hello<|im_end|>
	// <|im_start|>assistant
}
