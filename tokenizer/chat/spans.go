package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Span is a stretch of text, in bytes: text[Start:End].
type Span struct{ Start, End int }

// RenderSpans renders a conversation and tells where the assistant's answers stand in it,
// each with the token that ends its turn: what a model is to learn.
//
// A template that marks answers by generation tags decides itself. For others the answers
// are found by rendering beginnings of the conversation: an answer is what its message adds
// to the text before it with the generation prompt. White space that follows the end of a
// turn is no part of it. A conversation whose answers cannot be found, since the template
// rewrites them, gives [ErrSpans].
func (t *Template) RenderSpans(messages []Message, opts Options) (text string, answers []Span, err error) {
	p, err := t.program(opts)
	if err != nil {
		return "", nil, err
	}
	text, answers, err = t.render(messages, opts)
	if err != nil || p.hasAnswers {
		return text, answers, err
	}
	done := 0 // text before this has been assigned
	for i, m := range messages {
		if m.Role != "assistant" {
			continue
		}
		span, err := t.answer(messages, i, opts, text, done)
		if err != nil {
			return "", nil, err
		}
		if span.Start < span.End {
			answers = append(answers, span)
		}
		done = span.End
	}
	return text, answers, nil
}

// answer finds the answer messages[i] in text, at or behind from.
func (t *Template) answer(messages []Message, i int, opts Options, text string, from int) (Span, error) {
	opts.AddGenerationPrompt = false
	upTo, err := t.Render(messages[:i+1], opts)
	if err != nil {
		return Span{}, fmt.Errorf("%w: message %d: %w", ErrSpans, i, err)
	}
	opts.AddGenerationPrompt = true
	// Templates may refuse to begin with an answer; then its content tells its place.
	start := -1
	if prompt, err := t.Render(messages[:i], opts); err == nil {
		start = min(commonPrefix(prompt, upTo), commonPrefix(prompt, text))
	}
	content := strings.TrimFunc(messages[i].Content, isPythonSpace)
	at := -1 // of the content in upTo
	if content != "" {
		at = strings.LastIndex(upTo, content)
	}
	if start < from {
		if at < from || !strings.HasPrefix(text, upTo[:at]) {
			return Span{}, fmt.Errorf("%w: message %d does not follow a generation prompt", ErrSpans, i)
		}
		start = at
	}
	// The turn ends where the text up to this message ends, without the white space behind
	// the token that ends it.
	tail := ""
	if at >= start {
		tail = upTo[at+len(content):]
	} else {
		tail = upTo[start:]
	}
	if trimmed := strings.TrimRightFunc(tail, isPythonSpace); trimmed != "" {
		upTo = upTo[:len(upTo)-len(tail)+len(trimmed)]
		tail = trimmed
	}
	if strings.HasPrefix(text, upTo) {
		return Span{start, max(start, len(upTo))}, nil
	}
	// Later messages have changed how this one is rendered: look for what is left of it.
	if content != "" {
		if j := strings.Index(text[start:], content+tail); j >= 0 {
			return Span{start, start + j + len(content) + len(tail)}, nil
		}
	}
	return Span{}, fmt.Errorf("%w: the template renders message %d differently when others follow", ErrSpans, i)
}

// commonPrefix is the length of what two texts begin with, in whole characters.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return n
}
