package automaton

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrPattern is the error for a regular expression that is malformed or cannot be expressed as an automaton.
var ErrPattern = errors.New("pattern")

// syntax is a node of a regular expression.
type syntax struct {
	kind  kind
	chars []charRange // of isChars
	parts []*syntax   // of isSequence, isChoice; one of isRepeat
	min   int         // of isRepeat
	max   int         // negative: without end
}

type kind int8

const (
	isChars kind = iota
	isSequence
	isChoice
	isRepeat
	isBegin // ^
	isEnd   // $
)

// maxRepeat bounds the numbers in braces, and maxNesting the groups in groups.
const (
	maxRepeat  = 1000
	maxNesting = 100
)

// patternParser parses regular expressions of ECMA-262 with the flag u, except for constructs that need memory:
// look-around, back-references and word boundaries.
type patternParser struct {
	text  string
	at    int
	depth int
}

func parsePattern(text string) (*syntax, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrPattern)
	}
	p := &patternParser{text: text}
	s, err := p.choice()
	if err == nil && p.at < len(text) {
		err = p.fail("unexpected %q", text[p.at])
	}
	return s, err
}

func (p *patternParser) fail(format string, args ...any) error {
	return fmt.Errorf("%w %q: %s at byte %d", ErrPattern, p.text, fmt.Sprintf(format, args...), p.at)
}

func (p *patternParser) more() bool         { return p.at < len(p.text) }
func (p *patternParser) sees(s string) bool { return strings.HasPrefix(p.text[p.at:], s) }

// skips consumes s if it comes next.
func (p *patternParser) skips(s string) bool {
	if !p.sees(s) {
		return false
	}
	p.at += len(s)
	return true
}

// rune consumes a character.
func (p *patternParser) rune() rune {
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	p.at += n
	return r
}

func (p *patternParser) choice() (*syntax, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, p.fail("more than %d groups in one another", maxNesting)
	}
	defer func() { p.depth-- }()
	c := &syntax{kind: isChoice}
	for {
		s := &syntax{kind: isSequence}
		for p.more() && !p.sees("|") && !p.sees(")") {
			part, err := p.repeated()
			if err != nil {
				return nil, err
			}
			s.parts = append(s.parts, part)
		}
		c.parts = append(c.parts, s)
		if !p.skips("|") {
			return c, nil
		}
	}
}

// repeated parses an atom and its quantifier.
func (p *patternParser) repeated() (*syntax, error) {
	s, err := p.atom()
	if err != nil || !p.more() {
		return s, err
	}
	r := &syntax{kind: isRepeat, parts: []*syntax{s}, max: -1}
	switch {
	case p.skips("*"):
	case p.skips("+"):
		r.min = 1
	case p.skips("?"):
		r.max = 1
	case p.skips("{"):
		if r.min, r.max, err = p.braces(); err != nil {
			return nil, err
		}
	default:
		return s, nil
	}
	if s.kind == isBegin || s.kind == isEnd {
		return nil, p.fail("nothing to repeat")
	}
	p.skips("?") // lazy quantifiers match the same strings
	if p.sees("*") || p.sees("+") || p.sees("?") || p.sees("{") {
		return nil, p.fail("nothing to repeat")
	}
	return r, nil
}

func (p *patternParser) braces() (low, high int, err error) {
	inside, _, closed := strings.Cut(p.text[p.at:], "}")
	from, to, isRange := strings.Cut(inside, ",")
	low, err = count(from)
	high = low
	if err == nil && isRange {
		if high = -1; to != "" {
			high, err = count(to)
		}
	}
	switch {
	case !closed || err != nil:
		return 0, 0, p.fail("expected a number of repeats, of at most %d", maxRepeat)
	case high >= 0 && high < low:
		return 0, 0, p.fail("{%s} ends before it begins", inside)
	}
	p.at += len(inside) + 1
	return low, high, nil
}

func count(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n > maxRepeat {
		err = ErrTooLarge
	}
	return int(n), err
}

func (p *patternParser) atom() (*syntax, error) {
	switch {
	case p.skips("^"):
		return &syntax{kind: isBegin}, nil
	case p.skips("$"):
		return &syntax{kind: isEnd}, nil
	case p.skips("."):
		return &syntax{chars: without([]charRange{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})}, nil
	case p.skips("["):
		return p.class()
	case p.skips("("):
		return p.group()
	case p.sees("\\"):
		chars, err := p.escape(false)
		return &syntax{chars: chars}, err
	case p.sees("*"), p.sees("+"), p.sees("?"), p.sees("{"):
		return nil, p.fail("nothing to repeat")
	case p.sees("]"), p.sees("}"):
		return nil, p.fail("unexpected %q", p.text[p.at])
	}
	r := p.rune()
	return &syntax{chars: []charRange{{r, r}}}, nil
}

func (p *patternParser) group() (*syntax, error) {
	switch {
	case p.sees("?="), p.sees("?!"), p.sees("?<="), p.sees("?<!"):
		return nil, p.fail("look-around is not supported")
	case p.skips("?:"):
	case p.skips("?<"):
		if _, _, ok := strings.Cut(p.text[p.at:], ">"); !ok {
			return nil, p.fail("the name of a group has no end")
		}
		p.at += strings.Index(p.text[p.at:], ">") + 1
	case p.sees("?"):
		return nil, p.fail("this kind of group is not supported")
	}
	s, err := p.choice()
	if err == nil && !p.skips(")") {
		err = p.fail("expected )")
	}
	return s, err
}

// class parses a character class after its opening bracket.
func (p *patternParser) class() (*syntax, error) {
	negated := p.skips("^")
	var chars []charRange
	for {
		if !p.more() {
			return nil, p.fail("expected ]")
		}
		if p.skips("]") {
			break
		}
		low, err := p.member()
		if err != nil {
			return nil, err
		}
		if !p.sees("-") || p.sees("-]") {
			chars = append(chars, low...)
			continue
		}
		p.at++
		if !p.more() {
			return nil, p.fail("expected ]")
		}
		high, err := p.member()
		switch {
		case err != nil:
			return nil, err
		case !single(low) || !single(high):
			return nil, p.fail("a range from or to a class")
		case low[0].lo > high[0].lo:
			return nil, p.fail("a range that ends before it begins")
		}
		chars = append(chars, charRange{low[0].lo, high[0].lo})
	}
	if negated {
		return &syntax{chars: without(chars)}, nil
	}
	return &syntax{chars: without(without(chars))}, nil
}

func (p *patternParser) member() ([]charRange, error) {
	if p.sees("\\") {
		return p.escape(true)
	}
	r := p.rune()
	return []charRange{{r, r}}, nil
}

func single(c []charRange) bool { return len(c) == 1 && c[0].lo == c[0].hi }

// without returns the complement of chars, in order.
func without(chars []charRange) []charRange {
	chars = slices.Clone(chars)
	slices.SortFunc(chars, func(a, b charRange) int { return int(a.lo - b.lo) })
	var out []charRange
	for _, r := range every {
		from := r.lo
		for _, c := range chars {
			if c.hi < from || c.lo > r.hi {
				continue
			}
			if c.lo > from {
				out = append(out, charRange{from, c.lo - 1})
			}
			from = c.hi + 1
		}
		if from <= r.hi {
			out = append(out, charRange{from, r.hi})
		}
	}
	return out
}
