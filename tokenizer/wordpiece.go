package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// wordPiece repeatedly takes the longest known prefix of a word. A word that cannot be
// split this way becomes one unknown token.
type wordPiece struct {
	vocabulary
	unknown  string
	prefix   string // of all pieces of a word except the first
	maxChars int
	longest  int
}

func readWordPiece(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab    map[string]int32 `json:"vocab"`
		Unknown  string           `json:"unk_token"`
		Prefix   *string          `json:"continuing_subword_prefix"`
		MaxChars *int             `json:"max_input_chars_per_word"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("model WordPiece: %v", err)
	}
	v, err := newVocabulary(c.Vocab)
	if err != nil {
		return nil, err
	}
	m := &wordPiece{vocabulary: v, unknown: c.Unknown, prefix: "##", maxChars: 100}
	if c.Prefix != nil {
		m.prefix = *c.Prefix
	}
	if c.MaxChars != nil {
		m.maxChars = *c.MaxChars
	}
	for token := range v.ids {
		m.longest = max(m.longest, len(token))
	}
	return m, nil
}

func (m *wordPiece) encode(dst []int32, word string) ([]int32, error) {
	if len(word) > m.maxChars && utf8.RuneCountInString(word) > m.maxChars {
		return m.appendUnknown(dst, word)
	}
	n := len(dst)
	var buf []byte
	for start := 0; start < len(word); {
		buf = buf[:0]
		if start > 0 {
			buf = append(buf, m.prefix...)
		}
		lead := len(buf)
		end := min(len(word), start+max(m.longest-lead, 0))
		for end < len(word) && !utf8.RuneStart(word[end]) {
			end--
		}
		buf = append(buf, word[start:end]...)
		for len(buf) > lead {
			if id, ok := m.ids[string(buf)]; ok {
				dst = append(dst, id)
				break
			}
			_, size := utf8.DecodeLastRune(buf)
			buf = buf[:len(buf)-size]
		}
		if len(buf) == lead {
			return m.appendUnknown(dst[:n], word)
		}
		start += len(buf) - lead
	}
	return dst, nil
}

func (m *wordPiece) appendUnknown(dst []int32, word string) ([]int32, error) {
	id, ok := m.ids[m.unknown]
	if !ok {
		return nil, fmt.Errorf("%w: %q, and unk_token %q is not a token", ErrUnknownText, word, m.unknown)
	}
	return append(dst, id), nil
}

// wordLevel encodes whole words only.
type wordLevel struct {
	vocabulary
	unknown string
}

func readWordLevel(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab   map[string]int32 `json:"vocab"`
		Unknown string           `json:"unk_token"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("model WordLevel: %v", err)
	}
	v, err := newVocabulary(c.Vocab)
	return &wordLevel{v, c.Unknown}, err
}

func (m *wordLevel) encode(dst []int32, word string) ([]int32, error) {
	if id, ok := m.ids[word]; ok {
		return append(dst, id), nil
	}
	if id, ok := m.ids[m.unknown]; ok {
		return append(dst, id), nil
	}
	return nil, fmt.Errorf("%w: %q, and unk_token %q is not a token", ErrUnknownText, word, m.unknown)
}
