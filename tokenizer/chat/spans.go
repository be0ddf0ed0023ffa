package chat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Span is a byte range of a text: text[Start:End].
type Span struct{ Start, End int }

// RenderSpans renders a conversation and returns the spans of the assistant's answers, each
// with the token that ends its turn. Training computes the loss on these spans.
//
// If the template marks answers with generation tags, these define the spans. Otherwise
// RenderSpans locates the answers by rendering prefixes of the conversation: an answer is
// the text that its message adds after the prefix with the generation prompt. White space
// after the end of a turn is excluded. If the answers cannot be located, because the
// template rewrites them, RenderSpans fails with [ErrSpans]. The answers of messages whose
// indices are in except are omitted.
func (t *Template) RenderSpans(messages []Message, opts Options, except ...int) (text string, answers []Span, err error) {
	p, err := t.program(opts)
	if err != nil {
		return "", nil, err
	}
	text, answers, err = t.render(context.Background(), messages, opts)
	switch {
	case err != nil:
		return "", nil, err
	case p.hasAnswers:
		answers, err = without(answers, messages, except)
		return text, answers, err
	}
	done := 0 // end of the text already assigned
	for i, m := range messages {
		if m.Role != "assistant" {
			continue
		}
		span, err := t.answer(messages, i, opts, text, done)
		if err != nil {
			return "", nil, err
		}
		if span.Start < span.End && !slices.Contains(except, i) {
			answers = append(answers, span)
		}
		done = span.End
	}
	return text, answers, nil
}

// without omits the answers of the messages in except, if the template has marked one
// span per answer.
func without(answers []Span, messages []Message, except []int) ([]Span, error) {
	if len(except) == 0 {
		return answers, nil
	}
	var left []Span
	n := 0
	for i, m := range messages {
		if m.Role != "assistant" {
			continue
		}
		if n < len(answers) && !slices.Contains(except, i) {
			left = append(left, answers[n])
		}
		n++
	}
	if n != len(answers) {
		return nil, fmt.Errorf("%w: the template marks %d answers of %d messages of the assistant, of which some are to be left out", ErrSpans, len(answers), n)
	}
	return left, nil
}

// answer locates the answer messages[i] in text, at or after from.
func (t *Template) answer(messages []Message, i int, opts Options, text string, from int) (Span, error) {
	opts.AddGenerationPrompt = false
	upTo, err := t.Render(messages[:i+1], opts)
	if err != nil {
		return Span{}, fmt.Errorf("%w: message %d: %w", ErrSpans, i, err)
	}
	// Templates may reject the messages before an answer; before and prompt are empty
	// then.
	before, _ := t.Render(messages[:i], opts)
	prompted := opts
	prompted.AddGenerationPrompt = true
	prompt, _ := t.Render(messages[:i], prompted)

	// Locate the text that the answer adds to the prompt. If the prompt continues
	// differently from the answer (for example, to request reasoning), use it only up
	// to the last mark that both share.
	start := commonPrefix(prompt, upTo)
	if start < len(prompt) {
		start = lastMark(upTo, start)
	}
	known := prompt != "" && start >= len(before) && strings.HasPrefix(upTo, before)
	if known {
		end := start + len(turn(upTo[start:], messages[i].text()))
		if start >= from && strings.HasPrefix(text, upTo[:end]) {
			return Span{start, end}, nil
		}
	}
	// Later messages change how this or earlier messages are rendered. Replace the answer
	// with the marker to find its position and the end of its turn.
	marked := append([]Message(nil), messages...)
	marked[i] = messages[i].withContent(marker)
	inText, tail, err := t.locate(marked, len(messages), opts, text, from)
	if err != nil {
		return Span{}, fmt.Errorf("%w: message %d: %w", ErrSpans, i, err)
	}
	own, ownTail, err := t.locate(marked, i+1, opts, upTo, 0)
	if err != nil {
		return inText, nil
	}
	span := inText
	span.End += turnEnd(tail, turn(ownTail, ""), inText.Start == inText.End)
	if !known {
		return span, nil
	}
	// The answer begins as in the shorter text, or after the same header.
	ahead := text[from:inText.Start]
	if own.Start >= start && strings.HasSuffix(ahead, upTo[start:own.Start]) {
		span.Start -= own.Start - start
		return span, nil
	}
	for header := upTo[len(before):start]; header != ""; header = header[:lastMark(header, len(header)-1)] {
		if at := strings.LastIndex(ahead, header); at >= 0 {
			span.Start = from + at + len(header)
			break
		}
	}
	return span, nil
}

// marker replaces the content of an answer; it does not occur in real text.
const marker = "\uE0F0answer\uE0F1"

func (m Message) withContent(content string) Message {
	d, err := m.value()
	if err != nil {
		return m
	}
	d.setString("content", content)
	return Message{Role: m.Role, Content: content, raw: d}
}

// locate compares text with the first n messages rendered with the marker. It returns the
// span of the content that the marker replaces, and the text after it.
func (t *Template) locate(marked []Message, n int, opts Options, text string, from int) (Span, string, error) {
	other, err := t.Render(marked[:n], opts)
	if err != nil {
		return Span{}, "", err
	}
	start := strings.Index(other, marker)
	if start < 0 {
		return Span{}, "", fmt.Errorf("the template does not show its content")
	}
	tail := other[start+len(marker):]
	start = min(start, commonPrefix(text, other))
	same := 0 // length of the common suffix
	for same < len(tail) && same < len(text)-start && text[len(text)-1-same] == tail[len(tail)-1-same] {
		same++
	}
	for same > 0 && !utf8.RuneStart(text[len(text)-same]) {
		same--
	}
	if start < from {
		return Span{}, "", fmt.Errorf("it does not come behind the answer before it")
	}
	return Span{start, len(text) - same}, text[len(text)-same:], nil
}

// turn returns an answer without the white space after the token that ends it. White
// space that itself ends the turn is kept.
func turn(answer, content string) string {
	content = strings.TrimFunc(content, isPythonSpace)
	trimmed := strings.TrimRightFunc(answer, isPythonSpace)
	if trimmed == "" || content != "" && strings.HasSuffix(trimmed, content) {
		return answer
	}
	return trimmed
}

// turnEnd returns the length of the common prefix of text and end, the end of a turn, back
// to a mark if that is not all of end. An answer without content may lack the white space
// that separates content.
func turnEnd(text, end string, noContent bool) int {
	if noContent && !strings.HasPrefix(text, end) {
		end = strings.TrimLeftFunc(end, isPythonSpace)
	}
	n := commonPrefix(text, end)
	if n == len(end) {
		return n
	}
	return len(turn(end[:lastMark(end, n)], ""))
}

// lastMark returns the length of s[:n] up to and including the last character that
// ends a token or header in current templates.
func lastMark(s string, n int) int {
	return strings.LastIndexAny(s[:n], "\n>]|:") + 1
}

// commonPrefix returns the length of the longest common prefix, in whole
// characters.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && (n < len(a) && !utf8.RuneStart(a[n]) || n < len(b) && !utf8.RuneStart(b[n])) {
		n--
	}
	return n
}
