package serve

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// bytesOf returns the bytes that a token adds to a text.
func (s *Server) bytesOf(id int32) []byte {
	if pieces := s.pieces(); id >= 0 && int(id) < len(pieces) && len(pieces[id]) > 0 {
		return pieces[id]
	}
	text, _ := s.tokenizer.Token(id)
	return []byte(text)
}

// textOf returns a readable form of a token. A token that is part of a character is written as
// OpenAI does.
func textOf(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var t strings.Builder
	t.WriteString("bytes:")
	for _, x := range b {
		fmt.Fprintf(&t, `\x%02x`, x)
	}
	return t.String()
}

// logprob returns x in a form that JSON can represent. Like vLLM, it replaces the log-probability
// of an impossible token by -9999.
func logprob(x float32) float32 {
	const least = -9999
	if x > least {
		return x
	}
	return least
}

// tokenLogprob is a token with its log-probability.
type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// positionLogprob holds a token and its alternatives with their log-probabilities.
type positionLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

// chatLogprobs holds the log-probabilities of a chat completion, or of a part of it.
type chatLogprobs struct {
	Content []positionLogprob `json:"content"`
}

func (s *Server) tokenLogprob(id int32, x float32) tokenLogprob {
	b := s.bytesOf(id)
	t := tokenLogprob{Token: textOf(b), Logprob: logprob(x), Bytes: make([]int, len(b))}
	for i, v := range b {
		t.Bytes[i] = int(v)
	}
	return t
}

// positionLogprob returns the entry of a token with the top most likely alternatives.
func (s *Server) positionLogprob(l generate.Logprobs, top int) positionLogprob {
	p := positionLogprob{s.tokenLogprob(l.ID, l.Logprob), []tokenLogprob{}}
	for _, x := range l.Top[:min(top, len(l.Top))] {
		p.Top = append(p.Top, s.tokenLogprob(x.ID, x.Logprob))
	}
	return p
}

// textLogprobs holds the log-probabilities of a completion, or of a part of it.
type textLogprobs struct {
	Tokens  []string     `json:"tokens"`
	Values  []*float32   `json:"token_logprobs"`
	Top     []*topTokens `json:"top_logprobs"`
	Offsets []int        `json:"text_offset"` // of the tokens in the text, in characters
}

// topTokens is encoded as an object of tokens and log-probabilities, the most likely token first.
type topTokens []tokenLogprob

// MarshalJSON writes the object. If several tokens have the same text, only the most likely is
// included.
func (t topTokens) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	seen := map[string]bool{}
	for _, x := range t {
		if seen[x.Token] {
			continue
		}
		if len(seen) > 0 {
			b.WriteByte(',')
		}
		seen[x.Token] = true
		name, err := web.Marshal(x.Token)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.WriteString(strconv.FormatFloat(float64(x.Logprob), 'g', -1, 32))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// textLogprobs returns the log-probabilities of tokens whose text starts at offset, and the offset
// after them, both in characters. The first token of a prompt has no log-probability, since nothing
// precedes it.
func (s *Server) textLogprobs(tokens []generate.Logprobs, top, offset int, prompt bool) (l *textLogprobs, after int) {
	l = &textLogprobs{Tokens: []string{}, Values: []*float32{}, Top: []*topTokens{}, Offsets: []int{}}
	for i, t := range tokens {
		b := s.bytesOf(t.ID)
		l.Tokens = append(l.Tokens, textOf(b))
		l.Offsets = append(l.Offsets, offset)
		for _, x := range b {
			if utf8.RuneStart(x) {
				offset++
			}
		}
		if prompt && i == 0 {
			l.Values, l.Top = append(l.Values, nil), append(l.Top, nil)
			continue
		}
		x := logprob(t.Logprob)
		all := topTokens{}
		chosen := false
		for _, o := range t.Top[:min(top, len(t.Top))] {
			all = append(all, s.tokenLogprob(o.ID, o.Logprob))
			chosen = chosen || o.ID == t.ID
		}
		if !chosen {
			all = append(all, s.tokenLogprob(t.ID, t.Logprob))
		}
		l.Values, l.Top = append(l.Values, &x), append(l.Top, &all)
	}
	return l, offset
}

// promptToken is a prompt token or an alternative to it, in vLLM's form.
type promptToken struct {
	Logprob float32 `json:"logprob"`
	Rank    *int    `json:"rank"` // null if it is not among the most likely
	Decoded string  `json:"decoded_token"`
}

// promptLogprobs returns the log-probabilities of a prompt by token ID, in vLLM's form. Each
// position has the prompt's token and the top most likely tokens.
func (s *Server) promptLogprobs(tokens []generate.Logprobs, top int) []map[string]promptToken {
	all := make([]map[string]promptToken, len(tokens))
	for i, t := range tokens {
		if i == 0 {
			continue
		}
		all[i] = map[string]promptToken{}
		put := func(id int32, x float32, rank *int) {
			all[i][strconv.Itoa(int(id))] = promptToken{logprob(x), rank, textOf(s.bytesOf(id))}
		}
		put(t.ID, t.Logprob, nil)
		for j, o := range t.Top {
			rank := j + 1
			if j < top || o.ID == t.ID {
				put(o.ID, o.Logprob, &rank)
			}
		}
	}
	return all
}

// join appends more to l and returns the result.
func (l *textLogprobs) join(more *textLogprobs) *textLogprobs {
	if l == nil {
		return more
	}
	l.Tokens, l.Values = append(l.Tokens, more.Tokens...), append(l.Values, more.Values...)
	l.Top, l.Offsets = append(l.Top, more.Top...), append(l.Offsets, more.Offsets...)
	return l
}
