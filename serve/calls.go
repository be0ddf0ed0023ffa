package serve

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// toolUse holds the options for parsing tool calls in the answers to a request.
type toolUse struct {
	options  tools.Options
	none     bool // the answers contain no calls to parse
	parallel bool // an answer may have several calls
}

// toolRequest holds the fields about tools.
type toolRequest struct {
	Parallel bool            `json:"parallel_tool_calls"`
	Tools    json.RawMessage `json:"tools"`
	Choice   json.RawMessage `json:"tool_choice"`
}

func newToolRequest() toolRequest { return toolRequest{Parallel: true} }

// toolUse passes the tools of a request to the chat template and, if tool_choice requires a call,
// constrains the answers to calls. If tool_choice allows only some tools, the model sees no others.
func (s *Server) toolUse(ctx context.Context, r toolRequest, form tools.Form, w *wish, k *conversation) (*toolUse, error) {
	u := &toolUse{parallel: r.Parallel, none: true}
	list, err := tools.Read(r.Tools, form)
	if err != nil {
		return nil, toolFailure("", err)
	}
	choice, err := tools.ReadChoice(r.Choice, list, form)
	if err != nil {
		return nil, toolFailure("", err)
	}
	if choice.Mode == tools.Off || len(list) == 0 {
		return u, nil
	}
	u.none = false
	list = choice.Of(list)
	u.options = tools.Options{Syntax: k.format.syntax, Tools: list, Only: choice.Allowed != nil, Forced: choice.Mode != tools.Auto}
	for _, t := range list {
		k.options.Tools = append(k.options.Tools, t.JSON)
	}
	if !u.options.Forced {
		if k.format.syntax == tools.None {
			return nil, web.Faulty("tools", "the chat template of the model teaches no calls that are known; a tool_choice of required, or of a function, has them")
		}
		w.keep = append(w.keep, k.format.syntax.Special()...)
		return u, nil
	}
	schema, err := k.format.syntax.Forced(list, choice, u.parallel)
	if err != nil {
		return nil, toolFailure("", err)
	}
	if w.grammar != nil {
		return nil, web.Faulty("tool_choice", "the answer cannot be calls and what response_format says")
	}
	if w.grammar, err = s.grammars.of(ctx, grammarSource{jsonSchema, string(schema)}); err != nil {
		return nil, grammarFailure("tools", err)
	}
	return u, nil
}

// toolFailure returns the failure for an error of package tools. within is the name of the object
// with the field and a dot, or empty for the body.
func toolFailure(within string, err error) error {
	if field, ok := errors.AsType[*tools.FieldError](err); ok {
		return web.Faulty(within+field.Field, "%s", field.Problem)
	}
	return web.Faulty(within+"tools", "%v", err)
}

// toolCall is a call of a message, or a streamed part of one.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // if streamed
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function toolFunction `json:"function"`
}

// toolFunction holds the name of the function to call and its arguments.
type toolFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// draft is a chat answer in progress.
type draft struct {
	begun   bool
	parser  *tools.Parser // nil before the first token, and if calls are not parsed
	content strings.Builder
	calls   []toolCall
	called  bool
}

// take processes the text of a token, which may be the last, and returns the deltas that it completes.
func (d *draft) take(u *toolUse, text string, last bool) []chatDelta {
	if u.none {
		if text == "" {
			return nil
		}
		return []chatDelta{{Content: &text}}
	}
	if d.parser == nil {
		d.parser = tools.New(u.options)
	}
	parts := d.parser.Push(text)
	if last {
		parts = append(parts, d.parser.Flush()...)
	}
	var deltas []chatDelta
	for _, p := range parts {
		switch {
		case p.Text != "":
			deltas = append(deltas, chatDelta{Content: &p.Text})
		case p.Index > 0 && !u.parallel:
		default:
			d.called = true
			c := toolCall{Index: &p.Index, Function: toolFunction{p.Name, p.Arguments}}
			if c.ID = p.ID; p.ID != "" {
				c.Type = "function"
			}
			deltas = append(deltas, chatDelta{Calls: []toolCall{c}})
		}
	}
	return deltas
}

// add appends a delta to the message.
func (d *draft) add(delta chatDelta) {
	if delta.Content != nil {
		d.content.WriteString(*delta.Content)
	}
	for _, c := range delta.Calls {
		if *c.Index == len(d.calls) {
			d.calls = append(d.calls, toolCall{ID: c.ID, Type: c.Type, Function: toolFunction{Name: c.Function.Name}})
		}
		d.calls[*c.Index].Function.Arguments += c.Function.Arguments
	}
}

// message returns the complete message.
func (d *draft) message() *chatMessage {
	m := &chatMessage{Role: "assistant", Calls: d.calls}
	if text := d.content.String(); text != "" || !d.called {
		m.Content = &text
	}
	return m
}

// reason returns OpenAI's finish_reason of an answer.
func (d *draft) reason(f generate.Finish) string {
	if d.called && f != generate.FinishLength {
		return "tool_calls"
	}
	return reason(f)
}
