package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// chatFormat holds the chat template and its properties, of a model or of an adapter with
// its own chat template.
type chatFormat struct {
	template  *chat.Template // nil if there is none
	syntax    tools.Syntax   // of the calls in the template
	developer bool           // the template supports the role developer
	thinking  thinkMarks     // zero if the template has no reasoning
}

func newChatFormat(t *chat.Template) chatFormat {
	if t == nil {
		return chatFormat{}
	}
	source := t.Source(chat.Options{Tools: []any{}})
	return chatFormat{t, tools.Detect(source), strings.Contains(source, "developer"), detectThinking(source)}
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
	return newChatFormat(own.WithDefaultTokens(s.tokenizer.SpecialTokens()))
}

// conversation is the input of a chat template, and its output.
type conversation struct {
	field    string // of the request with the messages
	format   chatFormat
	messages []chat.Message
	options  chat.Options
	special  bool   // add the tokenizer's special tokens to the rendered template
	text     string // rendered
}

// conversationRequest holds the messages of a request and the options of the chat template.
type conversationRequest struct {
	templateRequest
	Messages []json.RawMessage `json:"messages" expected:"a list of messages"`
}

// templateRequest holds the options of the chat template.
type templateRequest struct {
	AddSpecialTokens    *bool                      `json:"add_special_tokens"`
	AddGenerationPrompt bool                       `json:"add_generation_prompt"`
	Continue            bool                       `json:"continue_final_message"`
	Variables           map[string]json.RawMessage `json:"chat_template_kwargs" expected:"an object"`
}

func newConversationRequest() conversationRequest {
	return conversationRequest{templateRequest: templateRequest{AddGenerationPrompt: true}}
}

// conversation returns the input of the chat template. field is the field of the request that has
// the messages.
func (s *Server) conversation(r conversationRequest, field string, format chatFormat) (*conversation, error) {
	k := &conversation{field: field, format: format, special: of(r.AddSpecialTokens, false)}
	k.options.AddGenerationPrompt, k.options.ContinueFinalMessage = r.AddGenerationPrompt, r.Continue
	if r.Continue && r.AddGenerationPrompt {
		return nil, web.Faulty("continue_final_message", "goes with add_generation_prompt: false; true is the default")
	}
	k.options.Extra = map[string]any{}
	for name, value := range r.Variables {
		k.options.Extra[name] = value // unparsed, so that templates see keys in their order
	}
	var err error
	k.messages, err = s.messages(field, r.Messages, format)
	return k, err
}

// prompt returns the tokens of a conversation, up to the start of the answer.
func (s *Server) prompt(ctx context.Context, k *conversation) ([]int32, error) {
	if k.format.template == nil {
		return nil, web.Invalid(k.field, "the model has no chat template; /v1/completions needs none")
	}
	k.options.MaxBytes = maxTokenBytes * s.options.MaxLength
	text, err := k.format.template.RenderContext(ctx, k.messages, k.options)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, chat.ErrTooLong):
		f := invalidBecause(k.field, err)
		f.Code = tooLong
		return nil, f
	case err != nil:
		return nil, invalidBecause(k.field, err)
	}
	k.text = text
	return s.tokens(k.field, text, k.special)
}

// messages decodes the messages of the field name.
func (s *Server) messages(name string, raws []json.RawMessage, format chatFormat) ([]chat.Message, error) {
	if len(raws) == 0 {
		return nil, web.Faulty(name, "there are none")
	}
	left := s.options.MaxLength
	if err := s.fits(name, len(raws), "messages", &left); err != nil {
		return nil, err
	}
	all := make([]chat.Message, len(raws))
	for i, raw := range raws {
		var err error
		if all[i], err = s.message(fmt.Sprintf("%s[%d]", name, i), raw, format, &left); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// fits subtracts n from left, the number of prompt tokens still available: each message, part and
// call needs at least one token. It returns an error if they do not fit, before any of them is
// decoded.
func (s *Server) fits(name string, n int, what string, left *int) error {
	if *left -= n; *left >= 0 {
		return nil
	}
	f := web.Faulty(name, "found %d %s; prompt and answer can have %d tokens together", n, what, s.options.MaxLength)
	f.Code = tooLong
	return f
}

// messageRequest holds the fields of a message that are checked; a template may read others.
type messageRequest struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   json.RawMessage `json:"tool_calls"`
}

// message decodes a message for the template, and the arguments of its calls to objects. left is
// the token budget of fits.
func (s *Server) message(name string, raw json.RawMessage, format chatFormat, left *int) (m chat.Message, err error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return m, web.Faulty(name, "found %s, expected a message, such as {\"role\": \"user\", \"content\": \"…\"}", web.Brief(raw))
	}
	var r messageRequest
	if err := web.DecodeObject(&r, values, name+"."); err != nil {
		return m, err
	}
	if r.Role == "" {
		return m, web.Faulty(name+".role", "is missing, expected system, user, assistant or tool")
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, web.Faulty(name+".content", "%v", err)
	}
	if m.Role == "developer" && !format.developer {
		m.Role = "system" // the name in older templates
	}
	m.Fields = map[string]any{}
	switch {
	case r.Content != nil:
		if m.Fields["content"], err = s.content(name+".content", r.Content, left); err != nil {
			return m, err
		}
	case m.Role == "assistant" && format.syntax == tools.DeepSeek:
		m.Fields["content"] = nil // such templates check for none
	case m.Role == "assistant":
		m.Fields["content"] = "" // clients send null together with tool calls, and many templates would print it
	}
	if r.Calls != nil {
		var list []json.RawMessage
		if json.Unmarshal(r.Calls, &list) == nil {
			if err := s.fits(name+".tool_calls", len(list), "calls", left); err != nil {
				return m, err
			}
		}
		calls, err := format.syntax.History(r.Calls)
		if err != nil {
			return m, toolFailure(name+".", err)
		}
		m.Fields["tool_calls"] = calls
	}
	return m, nil
}

// content returns the content of a message: a string, or a list of parts, which package chat
// converts to the form that the template reads.
func (s *Server) content(name string, raw json.RawMessage, left *int) (any, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	parts, ok := web.Elements[json.RawMessage](raw)
	if !ok {
		return nil, web.Faulty(name, "found %s, expected a string or a list of parts", web.Brief(raw))
	}
	if err := s.fits(name, len(parts), "parts", left); err != nil {
		return nil, err
	}
	err := chat.CheckContent(raw)
	if e, ok := errors.AsType[*chat.PartError](err); ok {
		return nil, web.Faulty(strings.TrimSuffix(name, "content")+e.Place(), "%s", e.Problem)
	} else if err != nil {
		return nil, web.Faulty(name, "%v", err)
	}
	return raw, nil
}
