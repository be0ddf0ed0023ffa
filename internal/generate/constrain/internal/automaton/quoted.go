package automaton

import "unicode/utf8"

// Quoted returns an automaton that matches the JSON strings whose value c matches. Each has one spelling: only
// characters that JSON cannot contain literally are escaped, with the short escape if there is one.
func Quoted(b *Budget, c *Chars) (*DFA, error) {
	if c.Empty() {
		return &DFA{Loop: Dead}, nil
	}
	return Build(b, computed, quoted{at: opening}, c.quotedStep, func(s quoted) bool { return s.at == closed })
}

// Literal returns an automaton that matches the strings that c matches, as UTF-8 without quotes or
// escapes.
func Literal(b *Budget, c *Chars) (*DFA, error) {
	if c.Empty() {
		return &DFA{Loop: Dead}, nil
	}
	return Build(b, computed, quoted{at: within}, c.literalStep, func(s quoted) bool { return s.at == within && c.states[s.state].final })
}

// quoted is a position in a string.
type quoted struct {
	at    place
	state int32 // state of the characters; if sure, the one after the current character
	v     rune  // bits of the current character read so far
	left  int8  // remaining bytes or digits of the current character
	sure  bool
}

type place int8

const (
	opening place = iota // the opening quote
	within               // between characters
	inChar               // inside the bytes of a character
	escaped              // after a backslash
	inHex                // inside \u....
	closed               // the closing quote
)

func (c *Chars) quotedStep(s quoted, b byte) (quoted, bool) {
	switch s.at {
	case opening:
		return quoted{at: within}, b == '"'
	case within:
		switch {
		case b == '"':
			return quoted{at: closed}, c.states[s.state].final
		case b == '\\':
			return quoted{at: escaped, state: s.state}, true
		case b < ' ':
			return s, false
		}
		return c.literalStep(s, b)
	case inChar:
		return c.literalStep(s, b)
	case escaped:
		if r, ok := shortEscape(b); ok && b != '/' {
			return c.char(s.state, r)
		}
		return quoted{at: inHex, state: s.state, left: 4}, b == 'u'
	case inHex:
		d, ok := hexDigit(b)
		if !ok || s.left > 2 && d != 0 || s.left == 2 && d > 1 {
			return s, false
		}
		s.v, s.left = s.v<<4|d, s.left-1
		if s.left > 0 {
			return s, true
		}
		if s.v == '\b' || s.v == '\f' || s.v == '\n' || s.v == '\r' || s.v == '\t' {
			return s, false
		}
		return c.char(s.state, s.v)
	}
	return s, false
}

// literalStep reads a byte of a character in UTF-8.
func (c *Chars) literalStep(s quoted, b byte) (quoted, bool) {
	switch {
	case s.at == inChar:
		if b < 0x80 || b > 0xBF || !s.sure && s.v == 0 && (s.left == 2 && b < 0xA0 || s.left == 3 && b < 0x90) {
			return s, false // not a continuation byte, or an overlong encoding
		}
		if s.left--; !s.sure {
			s.v = s.v<<6 | rune(b&0x3F)
		}
		return c.narrow(s)
	case b < utf8.RuneSelf:
		return c.char(s.state, rune(b))
	case 0xC2 <= b && b <= 0xDF:
		return c.narrow(quoted{at: inChar, state: s.state, v: rune(b & 0x1F), left: 1})
	case 0xE0 <= b && b <= 0xEF:
		return c.narrow(quoted{at: inChar, state: s.state, v: rune(b & 0x0F), left: 2})
	case 0xF0 <= b && b <= 0xF4:
		return c.narrow(quoted{at: inChar, state: s.state, v: rune(b & 0x07), left: 3})
	}
	return s, false
}

// char returns the position after a complete character.
func (c *Chars) char(state int32, r rune) (quoted, bool) {
	to := c.next(state, r)
	return quoted{at: within, state: to}, to != Dead
}

// narrow checks where the characters lead that start with the bits read so far. If all lead to one state, the position
// need not record the bits.
func (c *Chars) narrow(s quoted) (quoted, bool) {
	if s.sure {
		if s.left == 0 {
			return quoted{at: within, state: s.state}, true
		}
		return s, true
	}
	if s.left == 0 {
		return c.char(s.state, s.v)
	}
	shift := 6 * uint(s.left)
	lo := s.v << shift
	hi := lo + 1<<shift - 1
	from, to := lo, min(hi, utf8.MaxRune)
	switch { // overlong encodings
	case s.v == 0 && s.left == 2:
		from = 0x800
	case s.v == 0 && s.left == 3:
		from = 0x10000
	}
	for _, a := range c.states[s.state].arcs {
		if a.hi < from || a.lo > to {
			continue
		}
		if a.lo <= lo && hi <= a.hi && from == lo {
			return quoted{at: inChar, state: a.to, left: s.left, sure: true}, true
		}
		return s, true
	}
	return s, false
}

// shortEscape returns the character of a one-letter escape.
func shortEscape(b byte) (rune, bool) {
	switch b {
	case '"', '\\', '/':
		return rune(b), true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	}
	return 0, false
}

func hexDigit(b byte) (rune, bool) {
	switch {
	case '0' <= b && b <= '9':
		return rune(b - '0'), true
	case 'a' <= b && b <= 'f':
		return rune(b-'a') + 10, true
	case 'A' <= b && b <= 'F':
		return rune(b-'A') + 10, true
	}
	return 0, false
}
