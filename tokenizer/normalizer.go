package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer transforms text before it is split. atStart reports whether the first
// character of the result comes from the first character of s; the Metaspace pre-tokenizer
// with prepend_scheme "first" needs this.
type normalizer interface {
	normalize(s string) (out string, atStart bool)
}

var normalizerNames = []string{
	"BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt",
	"Precompiled", "Prepend", "Replace", "Sequence", "Strip", "StripAccents",
}

// readNormalizer parses the "normalizer" of a tokenizer.json; null gives nil.
func readNormalizer(raw json.RawMessage) (normalizer, error) {
	kind, err := componentType("normalizer", raw)
	if err != nil || kind == "" {
		return nil, err
	}
	var c struct {
		Normalizers  []json.RawMessage `json:"normalizers"`
		StripLeft    bool              `json:"strip_left"`
		StripRight   bool              `json:"strip_right"`
		CleanText    bool              `json:"clean_text"`
		ChineseChars bool              `json:"handle_chinese_chars"`
		StripAccents *bool             `json:"strip_accents"`
		Lowercase    bool              `json:"lowercase"`
		Prepend      string            `json:"prepend"`
		Content      string            `json:"content"`
		Pattern      json.RawMessage   `json:"pattern"`
		Charsmap     []byte            `json:"precompiled_charsmap"` // base64
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("normalizer %s: %v", kind, err)
	}
	switch kind {
	case "NFC":
		return unicodeForm{form: norm.NFC, decomposed: norm.NFD, composes: true}, nil
	case "NFD":
		return unicodeForm{form: norm.NFD, decomposed: norm.NFD}, nil
	case "NFKC":
		return unicodeForm{form: norm.NFKC, decomposed: norm.NFKD, composes: true, compat: true}, nil
	case "NFKD":
		return unicodeForm{form: norm.NFKD, decomposed: norm.NFKD, compat: true}, nil
	case "Lowercase":
		return lowercaser{}, nil
	case "StripAccents":
		return remover{combiningTable}, nil
	case "Strip":
		return stripper{left: c.StripLeft, right: c.StripRight}, nil
	case "Prepend":
		return prepender(c.Prepend), nil
	case "Replace":
		p, err := readPattern("normalizer Replace", c.Pattern)
		if err != nil {
			return nil, err
		}
		return replacer{p, c.Content}, nil
	case "Nmt":
		return nmt{}, nil
	case "ByteLevel":
		return byteLevelNormalizer{}, nil
	case "Precompiled":
		return readCharsmap(c.Charsmap)
	case "BertNormalizer":
		strip := c.Lowercase
		if c.StripAccents != nil {
			strip = *c.StripAccents
		}
		return newBertNormalizer(c.CleanText, c.ChineseChars, strip, c.Lowercase), nil
	case "Sequence":
		var seq normalizerSequence
		for _, raw := range c.Normalizers {
			n, err := readNormalizer(raw)
			if err != nil {
				return nil, err
			}
			if n != nil {
				seq = append(seq, n)
			}
		}
		return seq, nil
	}
	return nil, unsupported("normalizer", kind, normalizerNames...)
}

type normalizerSequence []normalizer

func (seq normalizerSequence) normalize(s string) (string, bool) {
	atStart := true
	for _, n := range seq {
		var kept bool
		s, kept = n.normalize(s)
		atStart = atStart && kept
	}
	return s, atStart
}

type lowercaser struct{}

func (lowercaser) normalize(s string) (string, bool) {
	if isASCII(s) {
		return strings.ToLower(s), true
	}
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		first, second := lowercase(r)
		b.WriteRune(first)
		if second != 0 {
			b.WriteRune(second)
		}
	}
	return b.String(), true
}

// remover removes the characters of a table.
type remover struct{ table *unicode.RangeTable }

func (n remover) normalize(s string) (string, bool) {
	if isASCII(s) && !n.removesASCII() {
		return s, true
	}
	atStart := true
	out := strings.Map(func(r rune) rune {
		if unicode.Is(n.table, r) {
			return -1
		}
		return r
	}, s)
	if s != "" {
		r, _ := utf8.DecodeRuneInString(s)
		atStart = !unicode.Is(n.table, r)
	}
	return out, atStart
}

func (n remover) removesASCII() bool { return n.table.R16[0].Lo < utf8.RuneSelf }

type stripper struct{ left, right bool }

func (n stripper) normalize(s string) (string, bool) {
	atStart := true
	if n.left {
		trimmed := strings.TrimLeftFunc(s, unicode.IsSpace)
		atStart = len(trimmed) == len(s)
		s = trimmed
	}
	if n.right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s, atStart
}

type prepender string

func (n prepender) normalize(s string) (string, bool) {
	if s == "" {
		return s, true
	}
	return string(n) + s, true
}

type replacer struct {
	pattern pattern
	content string
}

func (n replacer) normalize(s string) (string, bool) {
	if l, ok := n.pattern.(literal); ok && l != "" && !strings.Contains(s, string(l)) {
		return s, true
	}
	var b strings.Builder
	b.Grow(len(s))
	atStart := true
	for _, sp := range n.pattern.spans(s) {
		if !sp.match {
			b.WriteString(s[sp.start:sp.end])
			continue
		}
		// The replacement takes the position of the match's last character.
		if sp.start == 0 && sp.end > 0 {
			_, first := utf8.DecodeRuneInString(s)
			atStart = n.content != "" && sp.end == first
		}
		b.WriteString(n.content)
	}
	return b.String(), atStart
}

// nmt is the text clean-up applied to the training text of T5 and ALBERT.
type nmt struct{}

func (nmt) normalize(s string) (string, bool) {
	atStart, first := true, true
	out := strings.Map(func(r rune) rune {
		isFirst := first
		first = false
		switch {
		case 0x1 <= r && r <= 0x8, r == 0xB, 0xE <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
			if isFirst {
				atStart = false
			}
			return -1
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200B <= r && r <= 0x200F,
			r == 0x2028, r == 0x2029, r == 0x2581, r == 0xFEFF, r == 0xFFFD:
			return ' '
		}
		return r
	}, s)
	return out, atStart
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
