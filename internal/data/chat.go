package data

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// templateDate is the date that chat templates print, the fallback of Llama's templates. With the current date, a run
// resumed tomorrow would train on other token ids.
var templateDate = time.Date(2024, time.July, 26, 0, 0, 0, 0, time.UTC)

// Chat adapts a template of package chat to render the conversations of a file.
func Chat(t *chat.Template) ChatTemplate { return chatRenderer{t} }

type chatRenderer struct{ template *chat.Template }

func (r chatRenderer) RenderSpans(c Conversation) (string, []Span, error) {
	var messages []chat.Message
	if err := json.Unmarshal(c.Messages, &messages); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	options := chat.Options{Now: templateDate}
	if len(c.Tools) > 0 {
		var tools []json.RawMessage
		if err := json.Unmarshal(c.Tools, &tools); err != nil {
			return "", nil, fmt.Errorf("%w: tools: %w", ErrFormat, err)
		}
		for _, tool := range tools {
			options.Tools = append(options.Tools, tool)
		}
	}
	text, answers, err := r.template.RenderSpans(messages, options, c.Silent...)
	if err != nil {
		return "", nil, err
	}
	spans := make([]Span, len(answers))
	for i, a := range answers {
		spans[i] = Span(a)
	}
	return text, spans, nil
}
