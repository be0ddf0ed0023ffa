package serve

import (
	"context"
	"errors"
	"strings"

	"github.com/lorafuse/lorafuse/generate"
	"github.com/lorafuse/lorafuse/serve/batching"
	"github.com/lorafuse/lorafuse/serve/tools"
)

// toolUse is how calls of tools are read from the answers to a request.
type toolUse struct {
	options  tools.Options
	none     bool // there are none to be read
	parallel bool // more than one for an answer
}

// toolUse reads what a request says of tools: templates see them, and answers are kept to
// calls where those must come.
func (s *Server) toolUse(ctx context.Context, f *fields, w *wish, k *conversation) *toolUse {
	u := &toolUse{parallel: f.flag("parallel_tool_calls", true), none: true}
	list, err := tools.Read(f.raw("tools"))
	if err != nil {
		f.faultOf(err)
		return u
	}
	choice, err := tools.ReadChoice(f.raw("tool_choice"), list)
	if err != nil {
		f.faultOf(err)
		return u
	}
	if choice.Mode == tools.Off || len(list) == 0 {
		return u
	}
	u.none = false
	u.options = tools.Options{Syntax: k.format.syntax, Tools: list, Forced: choice.Mode != tools.Auto}
	for _, t := range list {
		k.options.Tools = append(k.options.Tools, t.JSON)
	}
	if !u.options.Forced {
		if k.format.syntax == tools.None {
			f.fault("tools", "the chat template of the model teaches no calls that are known; a tool_choice of required, or of a function, has them")
		}
		w.keep = k.format.syntax.Special()
		return u
	}
	schema, err := k.format.syntax.Forced(list, choice, u.parallel)
	if err != nil {
		f.faultOf(err)
		return u
	}
	if w.grammar != nil {
		f.fault("tool_choice", "the answer cannot be calls and what response_format says")
	}
	if w.grammar, err = s.grammars.of(ctx, schema); err != nil {
		f.failGrammar("tools", err)
	}
	return u
}

// faultOf notes an error of package tools.
func (f *fields) faultOf(err error) {
	var field *tools.FieldError
	if errors.As(err, &field) {
		f.fault(field.Field, "%s", field.Problem)
		return
	}
	f.fault("tools", "%v", err)
}

// toolCall is a call of a message, or a part of one that is under way.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // under way
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function toolFunction `json:"function"`
}

// toolFunction is what is called, and with what.
type toolFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// draft is an answer to a chat in the making.
type draft struct {
	begun   bool
	parser  *tools.Parser // nil before the first token, and where there are no calls to be read
	content strings.Builder
	calls   []toolCall
	called  bool
}

// take gives what comes with a token.
func (d *draft) take(u *toolUse, t batching.Token) []chatDelta {
	if u.none {
		if t.Text == "" {
			return nil
		}
		return []chatDelta{{Content: &t.Text}}
	}
	if d.parser == nil {
		d.parser = tools.New(u.options)
	}
	parts := d.parser.Push(t.Text)
	if t.Finish != "" {
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

// add puts a delta to the message.
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

// message is the whole.
func (d *draft) message() *chatMessage {
	m := &chatMessage{Role: "assistant", Calls: d.calls}
	if text := d.content.String(); text != "" || !d.called {
		m.Content = &text
	}
	return m
}

// reason is OpenAI's word for why an answer ended.
func (d *draft) reason(f generate.Finish) string {
	if d.called && f != generate.FinishLength {
		return "tool_calls"
	}
	return reason(f)
}
