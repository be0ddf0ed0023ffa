package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A piece is part of the text on its way to the model, or an added token.
type piece struct {
	text    string
	id      int32 // id of the added token; noID for text
	atStart bool  // starts with the first character of the input
}

const noID = -1

// A preTokenizer splits pieces of text further; the model never merges across a split.
// Added tokens are passed through. The result has no empty pieces.
type preTokenizer interface {
	split(in []piece) []piece
}

var preTokenizerNames = []string{
	"BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace",
	"Punctuation", "Sequence", "Split", "Whitespace", "WhitespaceSplit",
}

// readPreTokenizer parses the "pre_tokenizer" of a tokenizer.json; null gives
// nil.
func readPreTokenizer(raw json.RawMessage) (preTokenizer, error) {
	kind, err := componentType("pre_tokenizer", raw)
	if err != nil || kind == "" {
		return nil, err
	}
	var c struct {
		PreTokenizers    []json.RawMessage `json:"pretokenizers"`
		AddPrefixSpace   bool              `json:"add_prefix_space"`
		UseRegex         *bool             `json:"use_regex"`
		Pattern          json.RawMessage   `json:"pattern"`
		Behavior         string            `json:"behavior"`
		Invert           bool              `json:"invert"`
		IndividualDigits bool              `json:"individual_digits"`
		Delimiter        string            `json:"delimiter"`
		Length           *int              `json:"length"`
	}
	if kind != "Metaspace" {
		if err := json.Unmarshal(raw, &c); err != nil {
			return nil, malformed("pre_tokenizer %s: %v", kind, err)
		}
	}
	switch kind {
	case "ByteLevel":
		return byteLevel{prefixSpace: c.AddPrefixSpace, words: c.UseRegex == nil || *c.UseRegex}, nil
	case "Split":
		p, err := readPattern("pre_tokenizer Split", c.Pattern)
		if err != nil {
			return nil, err
		}
		if c.Invert {
			p = inverted{p}
		}
		b, err := readBehavior(c.Behavior)
		return splitter{p, b}, err
	case "Punctuation":
		if c.Behavior == "" {
			c.Behavior = "Isolated"
		}
		b, err := readBehavior(c.Behavior)
		return splitter{runeClass(isPunctuation), b}, err
	case "Digits":
		b := contiguous
		if c.IndividualDigits {
			b = isolated
		}
		return splitter{runeClass(isNumeric), b}, nil
	case "CharDelimiterSplit":
		r, err := oneRune("delimiter", c.Delimiter)
		return splitter{literal(string(r)), removed}, err
	case "FixedLength":
		length := 5
		if c.Length != nil {
			length = *c.Length
		}
		if length < 1 {
			return nil, malformed("pre_tokenizer FixedLength: length %d", length)
		}
		return splitter{fixedLength(length), isolated}, nil
	case "WhitespaceSplit":
		return splitter{runeClass(unicode.IsSpace), removed}, nil
	case "Whitespace":
		return splitter{wordsAndSymbols{}, removed}, nil
	case "BertPreTokenizer":
		return preTokenizerSequence{
			splitter{runeClass(unicode.IsSpace), removed},
			splitter{runeClass(isPunctuation), isolated},
		}, nil
	case "Metaspace":
		return readMetaspace("pre_tokenizer", raw)
	case "Sequence":
		var seq preTokenizerSequence
		for _, raw := range c.PreTokenizers {
			p, err := readPreTokenizer(raw)
			if err != nil {
				return nil, err
			}
			if p != nil {
				seq = append(seq, p)
			}
		}
		return seq, nil
	}
	return nil, unsupported("pre_tokenizer", kind, preTokenizerNames...)
}

type preTokenizerSequence []preTokenizer

func (seq preTokenizerSequence) split(in []piece) []piece {
	for _, p := range seq {
		in = p.split(in)
	}
	return in
}

// splitter splits at the matches of a pattern.
type splitter struct {
	pattern  pattern
	behavior behavior
}

func (p splitter) split(in []piece) []piece {
	out := make([]piece, 0, len(in)*4)
	for _, pc := range in {
		if pc.id != noID {
			out = append(out, pc)
			continue
		}
		for _, sp := range p.behavior.cuts(p.pattern.spans(pc.text)) {
			if sp.start < sp.end {
				out = append(out, piece{pc.text[sp.start:sp.end], noID, pc.atStart && sp.start == 0})
			}
		}
	}
	return out
}

// inverted swaps matches and the text between them.
type inverted struct{ pattern }

func (p inverted) spans(s string) []span {
	spans := p.pattern.spans(s)
	for i := range spans {
		spans[i].match = !spans[i].match
	}
	return spans
}

// wordsAndSymbols matches the text between matches of \w+|[^\w\s]+.
type wordsAndSymbols struct{}

func (wordsAndSymbols) spans(s string) []span {
	class := func(r rune) int {
		switch {
		case isWord(r):
			return 0
		case isSpace(r):
			return 1
		}
		return 2
	}
	var spans []span
	for start := 0; start < len(s); {
		first, size := utf8.DecodeRuneInString(s[start:])
		kind := class(first)
		end := endOf(func(r rune) bool { return class(r) == kind }, s, start+size)
		spans = append(spans, span{start, end, kind == 1})
		start = end
	}
	return spans
}

// fixedLength matches each sequence of n characters.
type fixedLength int

func (n fixedLength) spans(s string) []span {
	var spans []span
	for start := 0; start < len(s); {
		end := start
		for i := 0; i < int(n) && end < len(s); i++ {
			_, size := utf8.DecodeRuneInString(s[end:])
			end += size
		}
		spans = append(spans, span{start, end, true})
		start = end
	}
	return spans
}

// metaspace replaces spaces with a visible character and splits before it.
type metaspace struct {
	replacement string
	scheme      string // "always", "first", "never"
	cuts        bool
}

func readMetaspace(kind string, raw json.RawMessage) (metaspace, error) {
	var c struct {
		Replacement    string `json:"replacement"`
		PrependScheme  string `json:"prepend_scheme"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // in older files
		Split          *bool  `json:"split"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return metaspace{}, malformed("%s Metaspace: %v", kind, err)
	}
	if _, err := oneRune(kind+" Metaspace: replacement", c.Replacement); err != nil {
		return metaspace{}, err
	}
	m := metaspace{c.Replacement, c.PrependScheme, c.Split == nil || *c.Split}
	switch m.scheme {
	case "":
		m.scheme = "always"
	case "always", "first", "never":
	default:
		return m, unsupported(kind+" Metaspace: prepend_scheme", m.scheme, "always", "first", "never")
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		if c.PrependScheme != "" && c.PrependScheme != "never" {
			return m, malformed("%s Metaspace: add_prefix_space false with prepend_scheme %q", kind, c.PrependScheme)
		}
		m.scheme = "never"
	}
	return m, nil
}

func (m metaspace) split(in []piece) []piece {
	out := make([]piece, 0, len(in))
	for _, p := range in {
		if p.id == noID {
			p.text = strings.ReplaceAll(p.text, " ", m.replacement)
			if (m.scheme == "always" || m.scheme == "first" && p.atStart) && !strings.HasPrefix(p.text, m.replacement) {
				p.text = m.replacement + p.text
			}
		}
		out = append(out, p)
	}
	if !m.cuts {
		return out
	}
	return splitter{literal(m.replacement), mergedWithNext}.split(out)
}
