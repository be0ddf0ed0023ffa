package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// A span is a match of a pattern, or the text between two matches.
type span struct {
	start, end int
	match      bool
}

// A pattern splits s into spans that cover it without gaps. An empty s has one empty
// span, which is no match.
type pattern interface {
	spans(s string) []span
}

// readPattern parses {"String": "..."} or {"Regex": "..."}.
func readPattern(owner string, raw json.RawMessage) (pattern, error) {
	var p struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, malformed("%s: pattern: %v", owner, err)
	}
	switch {
	case p.String != nil && p.Regex == nil:
		return literal(*p.String), nil
	case p.Regex != nil && p.String == nil:
		return compilePattern(owner, *p.Regex)
	}
	return nil, malformed("%s: pattern must have one of \"String\" and \"Regex\"", owner)
}

// compilePattern returns the hand-written scanner of a well-known pattern. It compiles
// others with the regexp library.
func compilePattern(owner, expr string) (pattern, error) {
	if scan, ok := scanners[expr]; ok {
		return scan, nil
	}
	if err := checkDialect(expr); err != nil {
		return nil, fmt.Errorf("%s: pattern %q: %w", owner, expr, err)
	}
	// In the library's dialect ^ and $ match at line boundaries.
	re, err := regexp2.Compile(modernized(expr), regexp2.Multiline)
	if err != nil {
		return nil, fmt.Errorf("%s: pattern %q: %w: %v", owner, expr, ErrUnsupported, err)
	}
	return regex{re}, nil
}

// checkDialect rejects character class syntax with different meanings in the regexp engine
// of Hugging Face tokenizers (Oniguruma) and in ours.
func checkDialect(expr string) error {
	inClass := false
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\':
			i++
			if i < len(expr) && strings.IndexByte("hHRXKGyYNO", expr[i]) >= 0 {
				return fmt.Errorf("%w: \\%c", ErrUnsupported, expr[i])
			}
		case !inClass && c == '[':
			inClass = true
			rest := strings.TrimPrefix(expr[i+1:], "^")
			if strings.HasPrefix(rest, "]") { // a literal bracket in both
				i = len(expr) - len(rest)
			}
		case inClass && c == ']':
			inClass = false
		case inClass && c == '[':
			return fmt.Errorf("%w: a class inside a class", ErrUnsupported)
		case inClass && strings.HasPrefix(expr[i:], "&&"):
			return fmt.Errorf("%w: the intersection && of classes", ErrUnsupported)
		}
	}
	return nil
}

// literal is a pattern that matches one string.
type literal string

func (l literal) spans(s string) []span {
	return cover(s, func(from int) (int, int, bool) {
		i := strings.Index(s[from:], string(l))
		if i < 0 {
			return 0, 0, false
		}
		return from + i, from + i + len(l), true
	})
}

// runeClass is a pattern that matches single characters.
type runeClass func(rune) bool

func (class runeClass) spans(s string) []span {
	if s == "" {
		return []span{{}}
	}
	var spans []span
	last := 0
	for i, r := range s {
		if !class(r) {
			continue
		}
		if last < i {
			spans = append(spans, span{last, i, false})
		}
		last = i + utf8.RuneLen(r)
		spans = append(spans, span{i, last, true})
	}
	if last < len(s) {
		spans = append(spans, span{last, len(s), false})
	}
	return spans
}

// scanner is a pattern that matches everywhere: called with i < len(s) it returns the end
// of the match that starts at i.
type scanner func(s string, i int) int

func (scan scanner) spans(s string) []span {
	if s == "" {
		return []span{{}}
	}
	spans := make([]span, 0, len(s)/4+1)
	for i := 0; i < len(s); {
		end := scan(s, i)
		spans = append(spans, span{i, end, true})
		i = end
	}
	return spans
}

// regex is a pattern compiled with the regexp library.
type regex struct{ re *regexp2.Regexp }

func (x regex) spans(s string) []span {
	matches, err := x.re.FindAllStringIndex(s, -1)
	if err != nil { // cannot happen: matching fails only by timeout, and none is set
		matches = nil
	}
	return cover(s, func(int) (int, int, bool) {
		if len(matches) == 0 {
			return 0, 0, false
		}
		m := matches[0]
		matches = matches[1:]
		return m[0], m[1], true
	})
}

// cover splits s into the matches that find returns, from left to right, and the text
// between them. It ignores an empty match directly after another match.
func cover(s string, find func(from int) (start, end int, ok bool)) []span {
	if s == "" {
		return []span{{}}
	}
	var spans []span
	last, lastMatch := 0, -1
	for from := 0; from <= len(s); {
		start, end, ok := find(from)
		if !ok {
			break
		}
		if start == end && end == lastMatch {
			_, size := utf8.DecodeRuneInString(s[from:])
			from += max(size, 1)
			continue
		}
		if last < start {
			spans = append(spans, span{last, start, false})
		}
		spans = append(spans, span{start, end, true})
		last, lastMatch, from = end, end, end
	}
	if last < len(s) {
		spans = append(spans, span{last, len(s), false})
	}
	return spans
}
