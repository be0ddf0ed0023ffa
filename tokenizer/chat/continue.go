package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// continueMark marks the end of the last message, as in transformers. Its last character is a space,
// which shows whether the template removes white space at the end of a message.
const continueMark = "CONTINUE_FINAL_MESSAGE_TAG "

// renderContinued renders a conversation up to the end of the last message's content.
func (t *Template) renderContinued(ctx context.Context, messages []Message, opts Options) (string, error) {
	fail := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: the final message cannot be continued: %s", ErrRender, fmt.Sprintf(format, args...))
	}
	switch {
	case len(messages) == 0:
		return fail("there are no messages")
	case opts.AddGenerationPrompt:
		return fail("the text would have the header of another answer")
	}
	last, content, err := marked(messages[len(messages)-1])
	if err != nil {
		return fail("%v", err)
	}
	opts.ContinueFinalMessage = false
	if opts.MaxBytes > 0 {
		opts.MaxBytes += len(continueMark)
	}
	text, err := t.RenderContext(ctx, append(slices.Clone(messages[:len(messages)-1]), last), opts)
	if err != nil {
		return "", err
	}
	at := strings.LastIndex(text, strings.TrimSpace(continueMark))
	if at < 0 || !strings.Contains(text[:at], strings.TrimSpace(content)) {
		return fail("the template leaves out its content or a part of it")
	}
	if strings.HasPrefix(text[at:], continueMark) {
		return text[:at], nil
	}
	return strings.TrimRight(text[:at], " \t\r\n"), nil
}

// marked returns a message with the mark at the end of its content, and the content.
func marked(m Message) (out Message, content string, err error) {
	values, err := m.value()
	if err != nil {
		return m, "", err
	}
	if calls, _ := values.get("tool_calls"); calls != nil {
		return m, "", fmt.Errorf("it has tool calls after its content")
	}
	raw, _ := values.get("content")
	m.Fields = maps.Clone(m.Fields)
	if m.Fields == nil {
		m.Fields = map[string]any{}
	}
	if text, ok := raw.(string); ok {
		m.Fields["content"] = text + continueMark
		return m, text, nil
	}
	encoded, err := m.MarshalJSON()
	if err != nil {
		return m, "", err
	}
	var list struct{ Content []map[string]any }
	if json.Unmarshal(encoded, &list) == nil {
		for _, part := range slices.Backward(list.Content) {
			if text, ok := part["text"].(string); ok {
				part["text"] = text + continueMark
				m.Fields["content"] = list.Content
				return m, text, nil
			}
		}
	}
	return m, "", fmt.Errorf("it has no text")
}
