package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// Stream decodes ids incrementally. The concatenated results of [Stream.Push] and
// [Stream.Flush] equal the result of [Tokenizer.Decode] for all ids, and each of
// them is valid UTF-8. A Stream must not be used by several goroutines at once.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	keep        []string
	steps       sink
	text        textSink
}

// NewStream returns a new Stream. If skipSpecial is set, it omits special tokens except
// the ones in keep.
func (t *Tokenizer) NewStream(skipSpecial bool, keep ...string) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial, keep: keep}
	s.steps = openDecoders(t.decoders, &s.text)
	return s
}

// Push decodes the next id and returns the text that it completes. The text may be empty,
// because a character may need more tokens. A negative id gives [ErrTokenID].
func (s *Stream) Push(id int32) (string, error) {
	if err := s.step(id); err != nil {
		return "", err
	}
	return s.text.takeText(), nil
}

// Flush ends the text and returns the rest of it. The stream can then be used for
// another text.
func (s *Stream) Flush() string {
	s.steps.end()
	s.steps = openDecoders(s.t.decoders, &s.text)
	return s.text.takeText()
}

func (s *Stream) step(id int32) error {
	if id < 0 {
		return fmt.Errorf("%w %d: ids are not negative", ErrTokenID, id)
	}
	added := s.t.added
	token, ok := added.normalizedForm[id]
	if !ok {
		if token, ok = s.t.Token(id); !ok {
			return nil
		}
	}
	if !s.skipSpecial || !added.special[token] || slices.Contains(s.keep, token) {
		s.steps.token(token)
	}
	return nil
}

// textSink collects the output of the decoders.
type textSink struct{ b strings.Builder }

func (s *textSink) token(text string) { s.b.WriteString(text) }
func (s *textSink) end()              {}

func (s *textSink) takeText() string {
	text := s.b.String()
	s.b.Reset()
	return text
}
