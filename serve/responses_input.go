package serve

import (
	"encoding/json"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// item is an input or output item of a response.
type item struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Status    string          `json:"status,omitempty"`
	Role      string          `json:"role,omitempty"`      // of a message
	Content   []part          `json:"content,omitzero"`    // of a message or reasoning
	Summary   []part          `json:"summary,omitzero"`    // of reasoning
	CallID    string          `json:"call_id,omitempty"`   // of a call or its output
	Name      string          `json:"name,omitempty"`      // of a call
	Arguments *string         `json:"arguments,omitempty"` // of a call
	Output    json.RawMessage `json:"output,omitempty"`    // of a call's output
	outputs   []part          // Output, decoded
}

// part is a part of an item's content.
type part struct {
	Type        string            `json:"type"`
	Text        string            `json:"text"`
	Annotations []struct{}        `json:"annotations,omitzero"` // of answers
	Logprobs    []positionLogprob `json:"logprobs,omitzero"`    // of answers
}

// Types of items and parts.
const (
	messageItem   = "message"
	callItem      = "function_call"
	outputItem    = "function_call_output"
	reasoningItem = "reasoning"
	itemReference = "item_reference"

	inputText     = "input_text"
	outputText    = "output_text"
	reasoningText = "reasoning_text"
	summaryText   = "summary_text"
)

// itemRequest is an input item as clients send it.
type itemRequest struct {
	Type      string          `json:"type" one:"message|function_call|function_call_output|reasoning|item_reference"`
	ID        string          `json:"id"`
	Role      string          `json:"role" one:"user|assistant|system|developer"`
	Content   json.RawMessage `json:"content"`
	Summary   json.RawMessage `json:"summary"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments *string         `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Encrypted string          `json:"encrypted_content"`
}

// inputItems decodes the field input: a text, or a list of items.
func (s *Server) inputItems(who keys.Client, raw json.RawMessage) ([]item, error) {
	const name = "input"
	var text string
	if raw == nil {
		return nil, nil
	}
	if json.Unmarshal(raw, &text) == nil {
		return []item{{ID: newItemID("msg"), Type: messageItem, Status: completed, Role: "user", Content: []part{{Type: inputText, Text: text}}}}, nil
	}
	list, ok := web.Elements[json.RawMessage](raw)
	if !ok {
		return nil, web.Faulty(name, "found %s, expected a string or a list of items", web.Brief(raw))
	}
	left := s.options.MaxLength
	if err := s.fits(name, len(list), "items", &left); err != nil {
		return nil, err
	}
	items := make([]item, len(list))
	for i, raw := range list {
		var err error
		if items[i], err = s.inputItem(who, fmt.Sprintf("%s[%d]", name, i), raw, &left); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// inputItem decodes an item. left is the token budget of fits.
func (s *Server) inputItem(who keys.Client, name string, raw json.RawMessage, left *int) (x item, err error) {
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil || values == nil {
		return x, web.Faulty(name, "found %s, expected an item, such as {\"role\": \"user\", \"content\": \"…\"}", web.Brief(raw))
	}
	var r itemRequest
	if err := web.DecodeObject(&r, values, name+"."); err != nil {
		return x, err
	}
	missing := func(field string) error { return web.Faulty(name+"."+field, "is missing") }
	x = item{ID: r.ID, Type: r.Type, Status: completed}
	if r.Type == "" && r.Role == "" && r.ID != "" {
		r.Type = itemReference // whose type may be missing
	}
	switch r.Type {
	case itemReference:
		found, ok := s.responses.item(who, r.ID)
		if !ok {
			return x, web.Faulty(name+".id", "no stored response has the item %.100q", r.ID)
		}
		return found, nil
	case "", messageItem:
		if r.Role == "" {
			return x, web.Faulty(name+".role", "is missing, expected user, assistant, system or developer")
		}
		if r.Content == nil {
			return x, missing("content")
		}
		kind := inputText
		if r.Role == "assistant" {
			kind = outputText
		}
		x.Type, x.Role = messageItem, r.Role
		x.Content, err = s.parts(name+".content", r.Content, kind, left)
	case callItem:
		if r.CallID == "" {
			return x, missing("call_id")
		}
		if !tools.ValidName(r.Name) {
			return x, web.Faulty(name+".name", "found %.80q, expected 1 to 64 letters, digits, _ and -", r.Name)
		}
		if r.Arguments == nil {
			return x, missing("arguments")
		}
		x.CallID, x.Name, x.Arguments = r.CallID, r.Name, r.Arguments
	case outputItem:
		if r.CallID == "" {
			return x, missing("call_id")
		}
		if r.Output == nil {
			return x, missing("output")
		}
		x.CallID, x.Output = r.CallID, r.Output
		x.outputs, err = s.parts(name+".output", r.Output, inputText, left)
	case reasoningItem:
		if r.Encrypted != "" {
			return x, web.Faulty(name+".encrypted_content", "not supported: reasoning items have their text in content")
		}
		x.Content, x.Summary = []part{}, []part{}
		if r.Content != nil {
			x.Content, err = s.parts(name+".content", r.Content, reasoningText, left)
		}
		if err == nil && r.Summary != nil {
			x.Summary, err = s.parts(name+".summary", r.Summary, summaryText, left)
		}
	}
	if x.ID == "" {
		x.ID = newItemID(map[string]string{messageItem: "msg", callItem: "fc", outputItem: "fco", reasoningItem: "rs"}[x.Type])
	}
	return x, err
}

// parts decodes a text, or a list of text parts. kind is the type of the parts.
func (s *Server) parts(name string, raw json.RawMessage, kind string, left *int) ([]part, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []part{newPart(kind, text)}, nil
	}
	list, ok := web.Elements[json.RawMessage](raw)
	if !ok {
		return nil, web.Faulty(name, "found %s, expected a string or a list of parts", web.Brief(raw))
	}
	if err := s.fits(name, len(list), "parts", left); err != nil {
		return nil, err
	}
	all := []part{}
	for i, raw := range list {
		at := fmt.Sprintf("%s[%d]", name, i)
		var values map[string]json.RawMessage
		if json.Unmarshal(raw, &values) != nil || values == nil {
			return nil, web.Faulty(at, "found %s, expected an object with type and text", web.Brief(raw))
		}
		var p struct {
			Type    string  `json:"type"`
			Text    *string `json:"text"`
			Refusal *string `json:"refusal"`
		}
		if err := web.DecodeObject(&p, values, at+"."); err != nil {
			return nil, err
		}
		switch p.Type {
		case inputText, outputText, reasoningText, summaryText, "text":
		case "refusal":
			p.Text = p.Refusal
		default:
			return nil, web.Faulty(at+".type", "found %.60q, expected %s: the model reads text", p.Type, kind)
		}
		if p.Text == nil {
			return nil, web.Faulty(at+".text", "is missing")
		}
		all = append(all, newPart(kind, *p.Text))
	}
	return all, nil
}

func newPart(kind, text string) part {
	p := part{Type: kind, Text: text}
	if kind == outputText {
		p.Annotations, p.Logprobs = []struct{}{}, []positionLogprob{}
	}
	return p
}

// chatContent is a message of a chat completion request.
type chatContent struct {
	Role      string     `json:"role"`
	Content   any        `json:"content,omitempty"` // a string, or a list of text parts
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []toolCall `json:"tool_calls,omitempty"`
	CallID    string     `json:"tool_call_id,omitempty"`
}

// chatMessages converts instructions and items to the messages of a chat completion request.
// Reasoning, a text and calls that follow one another are one message of the assistant.
func chatMessages(instructions string, items []item) ([]json.RawMessage, error) {
	var all []*chatContent
	if instructions != "" {
		all = append(all, &chatContent{Role: "system", Content: instructions})
	}
	var turn *chatContent // of the assistant, to which more items belong
	assistant := func() *chatContent {
		if turn == nil {
			turn = &chatContent{Role: "assistant"}
			all = append(all, turn)
		}
		return turn
	}
	for _, x := range items {
		switch {
		case x.Type == reasoningItem:
			if turn != nil && (turn.Content != nil || turn.Calls != nil) {
				turn = nil
			}
			texts := x.Content
			if len(texts) == 0 {
				texts = x.Summary
			}
			for _, p := range texts {
				assistant().Reasoning += p.Text
			}
		case x.Type == callItem:
			m := assistant()
			m.Calls = append(m.Calls, toolCall{ID: x.CallID, Type: "function", Function: toolFunction{x.Name, *x.Arguments}})
		case x.Type == outputItem:
			turn = nil
			all = append(all, &chatContent{Role: "tool", Content: contentOf(x.outputs), CallID: x.CallID})
		case x.Role == "assistant":
			if turn != nil && (turn.Content != nil || turn.Calls != nil) {
				turn = nil
			}
			assistant().Content = contentOf(x.Content)
		default:
			turn = nil
			all = append(all, &chatContent{Role: x.Role, Content: contentOf(x.Content)})
		}
	}
	messages := make([]json.RawMessage, len(all))
	for i, m := range all {
		var err error
		if messages[i], err = web.Marshal(m); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// contentOf returns the content of a chat message: a text, or several parts.
func contentOf(parts []part) any {
	if len(parts) == 1 {
		return parts[0].Text
	}
	texts := make([]part, len(parts))
	for i, p := range parts {
		texts[i] = part{Type: "text", Text: p.Text}
	}
	return texts
}
