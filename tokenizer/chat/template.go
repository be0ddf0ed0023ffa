package chat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Template is a compiled chat template. It is safe for concurrent use.
type Template struct {
	programs map[string]*program // by name; "default" is the usual one
	tokens   map[string]string
	limits   limits
}

type program struct {
	body       []statement
	source     string
	hasAnswers bool // marks answers with generation tags
	content    contentFormat
}

// New compiles a template. The tokens become variables, such as "bos_token".
func New(source string, tokens map[string]string) (*Template, error) {
	return newTemplate(map[string]string{"default": source}, tokens)
}

func newTemplate(sources, tokens map[string]string) (*Template, error) {
	t := &Template{programs: map[string]*program{}, tokens: maps.Clone(tokens), limits: usual}
	for name, source := range sources {
		body, err := parse(source)
		if err != nil {
			if name != "default" {
				err = fmt.Errorf("template %q: %w", name, err)
			}
			return nil, err
		}
		t.programs[name] = &program{body, source, hasGeneration(body), detectContentFormat(body)}
	}
	return t, nil
}

// Options are inputs of a template in addition to the messages.
type Options struct {
	// AddGenerationPrompt appends the header of the assistant's answer to the
	// text.
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the text after the content of the last message, so that an answer
	// continues it.
	ContinueFinalMessage bool
	// Tools describe functions that the model may call. Each may be of any type that
	// encodes to JSON. The order of keys matters to templates, so pass JSON text as
	// json.RawMessage.
	Tools []any
	// Extra adds variables, such as "enable_thinking". They take precedence over special
	// tokens of the same name.
	Extra map[string]any
	// Now is the time formatted by strftime_now. Zero means the current time.
	Now time.Time
	// Name selects one of several templates. The default is "tool_use" if there are tools
	// and such a template, and "default" otherwise.
	Name string
	// MaxBytes is the maximum length of the text in bytes. Zero means no such limit.
	MaxBytes int
}

// Render returns the text of a conversation. Errors wrap [ErrRender]; errors raised by the
// template also wrap [ErrRefused], and a text longer than MaxBytes gives [ErrTooLong].
func (t *Template) Render(messages []Message, opts Options) (string, error) {
	return t.RenderContext(context.Background(), messages, opts)
}

// RenderContext renders a conversation like Render. When ctx ends, it fails
// with an error that wraps that of ctx.
func (t *Template) RenderContext(ctx context.Context, messages []Message, opts Options) (string, error) {
	if opts.ContinueFinalMessage {
		return t.renderContinued(ctx, messages, opts)
	}
	text, _, err := t.render(ctx, messages, opts)
	return text, err
}

// Source returns the text of the template that these options select, empty if there
// is none.
func (t *Template) Source(opts Options) string {
	p, err := t.program(opts)
	if err != nil {
		return ""
	}
	return p.source
}

func (t *Template) program(opts Options) (*program, error) {
	name := opts.Name
	if name == "" {
		name = "default"
		if opts.Tools != nil && t.programs["tool_use"] != nil {
			name = "tool_use"
		}
	}
	p := t.programs[name]
	if p == nil {
		return nil, fmt.Errorf("%w named %q; there are %s", ErrNoTemplate, name, known(t.programs))
	}
	return p, nil
}

func (t *Template) render(ctx context.Context, messages []Message, opts Options) (string, []Span, error) {
	p, err := t.program(opts)
	if err != nil {
		return "", nil, err
	}
	text, spans, parts, err := t.run(ctx, p, p.content, messages, opts)
	if err != nil {
		return "", nil, err
	}
	const begin = "[{'type': 'text', 'text': " // prefix of the text of a list of parts
	if !strings.Contains(text, begin) {
		return text, spans, nil
	}
	for _, list := range parts {
		if err := ctx.Err(); err != nil {
			return "", nil, fmt.Errorf("%w: %w", ErrRender, err)
		}
		if strings.Contains(text, unlimited().repr(list)) { // the template reads parts elsewhere only
			text, spans, _, err = t.run(ctx, p, contentText, messages, opts)
			break
		}
	}
	return text, spans, err
}

// run renders messages after converting their content to format f. It also returns the lists of
// parts that the template was given.
func (t *Template) run(ctx context.Context, p *program, f contentFormat, messages []Message, opts Options) (string, []Span, [][]any, error) {
	fail := func(err error) (string, []Span, [][]any, error) { return "", nil, nil, err }
	var err error
	var lists [][]any
	list := make([]any, len(messages))
	for i, m := range messages {
		d, err := m.value()
		if err != nil {
			return fail(err)
		}
		parts, err := f.adapt(d)
		if err != nil {
			return fail(fmt.Errorf("%w: messages[%d].%w", ErrRender, i, err))
		}
		if len(parts) > 0 {
			lists = append(lists, parts)
		}
		list[i] = withReasoning(d)
	}
	vars := map[string]any{}
	for name, token := range t.tokens {
		vars[name] = token
	}
	for name, v := range opts.Extra {
		if vars[name], err = fromGo(v); err != nil {
			return fail(fmt.Errorf("%w: variable %q: %v", ErrRender, name, err))
		}
	}
	vars["messages"], vars["add_generation_prompt"] = list, opts.AddGenerationPrompt
	vars["tools"] = nil
	if opts.Tools != nil {
		tools := make([]any, len(opts.Tools))
		for i, tool := range opts.Tools {
			if tools[i], err = fromGo(tool); err != nil {
				return fail(fmt.Errorf("%w: tool %d: %v", ErrRender, i, err))
			}
		}
		vars["tools"] = tools
	}
	if _, ok := vars["documents"]; !ok {
		vars["documents"] = nil
	}
	now := opts.Now
	if now.IsZero() {
		now = time.Now()
	}
	size := int64(len(p.source))
	for _, v := range vars {
		size += sizeOf(v)
	}
	root := &strings.Builder{}
	in := &interpreter{out: root, root: root, globals: builtins, now: now, maxBytes: opts.MaxBytes, meter: t.limits.meter(size)}
	in.ctx = ctx
	if err := in.run(p.body, &scope{vars: vars}); err != nil {
		if !errors.Is(err, ErrRender) {
			err = fmt.Errorf("%w: %w", ErrRender, err)
		}
		return fail(err)
	}
	return root.String(), in.spans, lists, nil
}
