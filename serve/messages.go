package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// chatFormat holds the chat template and its properties, of a model or of an adapter with
// its own chat template.
type chatFormat struct {
	template  *chat.Template // nil if there is none
	syntax    tools.Syntax   // of the calls in the template
	developer bool           // the template supports the role developer
}

func newChatFormat(t *chat.Template) chatFormat {
	if t == nil {
		return chatFormat{}
	}
	source := t.Source(chat.Options{Tools: []any{}})
	return chatFormat{t, tools.Detect(source), strings.Contains(source, "developer")}
}

// formatOf returns the chat format of a target.
func (s *Server) formatOf(t *target) chatFormat {
	if t.lease == nil || s.options.OneTemplate {
		return s.format
	}
	own := t.lease.Version().State().Template
	if own == nil {
		return s.format
	}
	return newChatFormat(own.OrTokens(s.tokenizer.SpecialTokens()))
}

// conversation is the input of a chat template.
type conversation struct {
	format   chatFormat
	messages []chat.Message
	options  chat.Options
	special  bool // add the tokenizer's special tokens to the rendered template
}

// conversation reads the messages of a request and the options of the chat template.
func (s *Server) conversation(f *fields, format chatFormat) *conversation {
	k := &conversation{format: format, messages: s.messages(f, format), special: f.flag("add_special_tokens", false)}
	k.options.AddGenerationPrompt = f.flag("add_generation_prompt", true)
	k.options.Extra = map[string]any{}
	var variables map[string]json.RawMessage
	f.into("chat_template_kwargs", &variables, "an object")
	for name, value := range variables {
		k.options.Extra[name] = value // unparsed, so that templates see keys in their order
	}
	return k
}

// prompt returns the tokens of a conversation, up to the start of the answer.
func (s *Server) prompt(ctx context.Context, k *conversation) ([]int32, error) {
	if k.format.template == nil {
		return nil, invalid("messages", "the model has no chat template; /v1/completions needs none")
	}
	k.options.MaxBytes = maxTokenBytes * s.options.MaxLength
	text, err := k.format.template.RenderContext(ctx, k.messages, k.options)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, chat.ErrTooLong):
		f := invalidBecause("messages", err)
		f.code = tooLong
		return nil, f
	case err != nil:
		return nil, invalidBecause("messages", err)
	}
	return s.tokens("messages", text, k.special)
}

// messages reads the field messages.
func (s *Server) messages(f *fields, format chatFormat) []chat.Message {
	const name = "messages"
	raws := list[json.RawMessage](f, name, "a list of messages")
	if len(raws) == 0 {
		f.fault(name, "there are none")
		return nil
	}
	left := s.options.MaxLength
	if s.tooMany(f, name, len(raws), "messages", &left) {
		return nil
	}
	all := make([]chat.Message, len(raws))
	for i, raw := range raws {
		m := &fields{within: fmt.Sprintf("%s[%d].", name, i)}
		if err := json.Unmarshal(raw, &m.values); err != nil || m.values == nil {
			f.fault(m.within[:len(m.within)-1], "found %s, expected a message, such as {\"role\": \"user\", \"content\": \"…\"}", brief(raw))
			return nil
		}
		all[i] = s.message(m, raw, format, &left)
		if f.take(m); f.err != nil {
			return nil
		}
	}
	return all
}

// tooMany subtracts n from left, the number of prompt tokens still available: each message, part
// and call needs at least one token. It reports whether they do not fit, before any of them is
// decoded.
func (s *Server) tooMany(f *fields, name string, n int, what string, left *int) bool {
	if *left -= n; *left >= 0 {
		return false
	}
	f.fault(name, "found %d %s; prompt and answer can have %d tokens together", n, what, s.options.MaxLength)
	f.err.code = tooLong
	return true
}

// message reads a message for the template and decodes the arguments of its calls to objects. left
// is the token budget of tooMany.
func (s *Server) message(f *fields, raw json.RawMessage, format chatFormat, left *int) chat.Message {
	var m chat.Message
	if f.text("role") == "" {
		f.fault("role", "is missing, expected system, user, assistant or tool")
		return m
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		f.fault("content", "%v", err)
		return m
	}
	if m.Role == "developer" && !format.developer {
		m.Role = "system" // the name in older templates
	}
	m.Fields = map[string]any{}
	switch {
	case f.has("content"):
		m.Fields["content"] = s.content(f, left)
	case m.Role == "assistant" && format.syntax == tools.DeepSeek:
		m.Fields["content"] = nil // such templates check for none
	case m.Role == "assistant":
		m.Fields["content"] = "" // clients send null together with tool calls, and many templates would print it
	}
	if raw := f.raw("tool_calls"); raw != nil {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil && s.tooMany(f, "tool_calls", len(list), "calls", left) {
			return m
		}
		calls, err := format.syntax.History(raw)
		if err != nil {
			f.faultOf(err)
		}
		m.Fields["tool_calls"] = calls
	}
	return m
}

// content returns the content of a message: a string, or a list of parts, which package chat
// converts to the form that the template reads.
func (s *Server) content(f *fields, left *int) any {
	var text string
	raw := f.raw("content")
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	parts := list[json.RawMessage](f, "content", "a string or a list of parts")
	if s.tooMany(f, "content", len(parts), "parts", left) {
		return nil
	}
	err := chat.CheckContent(raw)
	if e, ok := errors.AsType[*chat.PartError](err); ok {
		f.fault(e.Place(), "%s", e.Problem)
	} else if err != nil {
		f.fault("content", "%v", err)
	}
	return raw
}
