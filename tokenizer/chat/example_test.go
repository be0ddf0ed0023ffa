package chat_test

import (
	"encoding/json"
	"fmt"

	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

func Example() {
	tmpl, err := chat.Load("../../testdata/tokenizers/qwen2")
	if err != nil {
		fmt.Println(err)
		return
	}
	var messages []chat.Message
	_ = json.Unmarshal([]byte(`[{"role": "user", "content": "2+2?"}]`), &messages)
	messages = append(messages, chat.Message{Role: "assistant", Content: "4"})
	text, answers, err := tmpl.RenderSpans(messages, chat.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(text)
	for _, a := range answers {
		fmt.Printf("%d to %d: %q\n", a.Start, a.End, text[a.Start:a.End])
	}
	// Output:
	// <|im_start|>user
	// 2+2?<|im_end|>
	// <|im_start|>assistant
	// 4<|im_end|>
	// 54 to 65: "4<|im_end|>"
}
