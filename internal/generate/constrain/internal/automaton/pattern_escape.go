package automaton

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Character classes of ECMA-262 with a letter escape.
var (
	digits = []charRange{{'0', '9'}}
	words  = []charRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	spaces = []charRange{
		{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
		{0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF},
	}
)

// escape parses an escape sequence, starting at its backslash.
func (p *patternParser) escape(inClass bool) ([]charRange, error) {
	p.at++
	if !p.more() {
		return nil, p.fail("a backslash at the end")
	}
	r := p.rune()
	one := func(r rune) ([]charRange, error) { return []charRange{{r, r}}, nil }
	switch r {
	case 'd':
		return digits, nil
	case 'D':
		return without(digits), nil
	case 'w':
		return words, nil
	case 'W':
		return without(words), nil
	case 's':
		return spaces, nil
	case 'S':
		return without(spaces), nil
	case 'f', 'n', 'r', 't':
		c, _ := shortEscape(byte(r))
		return one(c)
	case 'v':
		return one('\v')
	case '0':
		if p.more() && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
			return nil, p.fail("octal numbers are not supported")
		}
		return one(0)
	case 'x':
		return p.hex(2)
	case 'u':
		return p.unicode()
	case 'b', 'B':
		if inClass && r == 'b' {
			return one('\b')
		}
		return nil, p.fail("the border of a word, \\%c, is not supported", r)
	case 'k', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return nil, p.fail("back-references are not supported")
	case 'p', 'P':
		return nil, p.fail("classes of Unicode, \\%c, are not supported", r)
	}
	if r >= utf8.RuneSelf || !strings.ContainsRune(`^$\.*+?()[]{}|/-"'#&!%,:;<=>@~_ `+"`", r) {
		return nil, p.fail("unknown escape \\%c", r)
	}
	return one(r)
}

func (p *patternParser) hex(n int) ([]charRange, error) {
	if len(p.text)-p.at < n {
		return nil, p.fail("expected %d hexadecimal digits", n)
	}
	v, err := strconv.ParseUint(p.text[p.at:p.at+n], 16, 32)
	if err != nil {
		return nil, p.fail("expected %d hexadecimal digits", n)
	}
	p.at += n
	return []charRange{{rune(v), rune(v)}}, nil
}

// unicode parses the rest of an escape after \u: four digits, a surrogate pair of two such escapes, or digits in
// braces.
func (p *patternParser) unicode() ([]charRange, error) {
	if p.skips("{") {
		n := strings.IndexByte(p.text[p.at:], '}')
		if n < 1 || n > 6 {
			return nil, p.fail("expected hexadecimal digits and }")
		}
		c, err := p.hex(n)
		if err == nil && !utf8.ValidRune(c[0].lo) {
			err = p.fail("not a character")
		}
		p.at++
		return c, err
	}
	high, err := p.hex(4)
	if err != nil || high[0].lo < 0xD800 || high[0].lo > 0xDFFF {
		return high, err
	}
	if high[0].lo < 0xDC00 && p.skips("\\u") {
		low, err := p.hex(4)
		if err != nil {
			return nil, err
		}
		if c := low[0].lo; 0xDC00 <= c && c <= 0xDFFF {
			c = 0x10000 + (high[0].lo-0xD800)<<10 + c - 0xDC00
			return []charRange{{c, c}}, nil
		}
	}
	return nil, p.fail("half a surrogate pair")
}
