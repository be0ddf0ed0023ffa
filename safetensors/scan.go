package safetensors

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// maxDepth is the maximum nesting of values, as in the reference. Only fields
// that the format does not define are nested more than three deep.
const maxDepth = 127

// scanner reads JSON text once, sequentially. The text must be valid UTF-8 and
// must not change: the returned strings point into it.
type scanner struct {
	text []byte
	pos  int
	base int64 // offset of the text in the file, for error messages
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end. A zero byte
// in the text is indistinguishable: neither starts a token.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) && s.text[s.pos] > ' ' {
		return s.text[s.pos]
	}
	s.space()
	if s.pos == len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

// accept skips white space, then c if it is the next byte, and reports whether
// it was.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) expect(c byte) error {
	if s.accept(c) {
		return nil
	}
	return s.fail(ErrSyntax, string(rune(c)))
}

// object reads an object. It calls member after the key and colon of each
// member.
func (s *scanner) object(member func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.accept('}') {
		return nil
	}
	for {
		key, err := s.string()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.accept('}') {
			return nil
		}
		if !s.accept(',') {
			return s.fail(ErrSyntax, "',' or '}'")
		}
	}
}

// array reads an array. It calls element for each element.
func (s *scanner) array(element func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.accept(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.accept(']') {
			return nil
		}
		if !s.accept(',') {
			return s.fail(ErrSyntax, "',' or ']'")
		}
	}
}

// string reads a string.
func (s *scanner) string() (string, error) {
	if !s.accept('"') {
		return "", s.fail(ErrSyntax, "a string")
	}
	start := s.pos
	i := plainPrefix(s.text, start)
	s.pos = i
	if i < len(s.text) && s.text[i] == '"' {
		s.pos++
		return s.slice(start, i), nil
	}
	return s.escapedString(start)
}

// slice returns part of the text, without a copy.
func (s *scanner) slice(from, to int) string {
	return unsafe.String(unsafe.SliceData(s.text[from:to]), to-from)
}

// escapedString reads the rest of a string that started at start, from its
// first escape or invalid byte.
func (s *scanner) escapedString(start int) (string, error) {
	out := append([]byte(nil), s.text[start:s.pos]...)
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return string(out), nil
		case c < ' ':
			return "", s.fail(ErrSyntax, "an escape for the control character")
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		default:
			end := plainPrefix(s.text, s.pos)
			out = append(out, s.text[s.pos:end]...)
			s.pos = end
		}
	}
	return "", s.fail(ErrSyntax, "the end of the string")
}

// escape reads an escape sequence, or both halves of a surrogate pair.
func (s *scanner) escape() (rune, error) {
	if s.pos+1 < len(s.text) {
		switch c := s.text[s.pos+1]; c {
		case '"', '\\', '/':
			s.pos += 2
			return rune(c), nil
		case 'b':
			s.pos += 2
			return '\b', nil
		case 'f':
			s.pos += 2
			return '\f', nil
		case 'n':
			s.pos += 2
			return '\n', nil
		case 'r':
			s.pos += 2
			return '\r', nil
		case 't':
			s.pos += 2
			return '\t', nil
		case 'u':
			r := s.codeUnit(s.pos)
			switch {
			case r < 0:
				return 0, s.fail(ErrSyntax, "four hexadecimal digits after \\u")
			case !utf16.IsSurrogate(r):
				s.pos += 6
				return r, nil
			}
			if pair := utf16.DecodeRune(r, s.codeUnit(s.pos+6)); pair != utf8.RuneError {
				s.pos += 12
				return pair, nil
			}
			return 0, s.fail(ErrSyntax, "a surrogate pair")
		}
	}
	return 0, s.fail(ErrSyntax, "an escape sequence")
}

// codeUnit returns the number in \uXXXX at position i, -1 if there is none.
func (s *scanner) codeUnit(i int) rune {
	if i+6 > len(s.text) || s.text[i] != '\\' || s.text[i+1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range s.text[i+2 : i+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unsigned reads an integer from 0 to 2^64-1: digits only, no leading zero.
func (s *scanner) unsigned(rule error) (uint64, error) {
	s.peek()
	start := s.pos
	if n, end := plainNumber(s.text, start); end > 0 && endsNumber(s.text, end) {
		s.pos = end
		return n, nil
	}
	var n uint64
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		digit := uint64(s.text[s.pos] - '0')
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, digit, 0)
		if hi != 0 || carry != 0 || n == 0 && s.pos > start {
			s.pos = start
			return 0, s.fail(rule, "an integer from 0 to 18446744073709551615")
		}
		n = sum
		s.pos++
	}
	if s.pos > start && endsNumber(s.text, s.pos) {
		return n, nil
	}
	s.pos = start
	return 0, s.fail(rule, "an integer from 0 to 18446744073709551615")
}

// endsNumber reports whether the text at i may follow a number in an array.
func endsNumber(text []byte, i int) bool {
	if i < len(text) {
		switch text[i] {
		case ',', ']', ' ', '\n', '\t', '\r':
			return true
		}
	}
	return false
}

// skip reads a value of any kind at the given nesting depth and checks only its
// syntax.
func (s *scanner) skip(depth int) error {
	if depth >= maxDepth && (s.peek() == '{' || s.peek() == '[') {
		return s.fail(ErrDepth, "at most "+strconv.Itoa(maxDepth)+" levels")
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(func(string) error { return s.skip(depth + 1) })
	case c == '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case c == '"':
		_, err := s.string()
		return err
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if len(s.text)-s.pos >= len(word) && string(s.text[s.pos:s.pos+len(word)]) == word {
			s.pos += len(word)
			return nil
		}
	}
	return s.fail(ErrSyntax, "a value")
}

// number skips a number of any kind that a float64 can represent, as the
// reference does.
func (s *scanner) number() error {
	start := s.pos
	if s.text[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.text) && s.text[s.pos] == '0' {
		s.pos++ // only a fraction or an exponent may follow
	} else if !s.digits() {
		return s.fail(ErrSyntax, "a digit")
	}
	if s.pos < len(s.text) && s.text[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return s.fail(ErrSyntax, "a digit")
		}
	}
	if s.pos < len(s.text) && s.text[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.text) && (s.text[s.pos] == '+' || s.text[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return s.fail(ErrSyntax, "a digit")
		}
	}
	if _, err := strconv.ParseFloat(string(s.text[start:s.pos]), 64); err != nil {
		s.pos = start
		return s.fail(ErrSyntax, "a number below 1.8e308")
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

// end checks that only white space is left.
func (s *scanner) end() error {
	if s.space(); s.pos < len(s.text) {
		return s.fail(ErrSyntax, "nothing after the object")
	}
	return nil
}

// fail returns an error at the current position.
func (s *scanner) fail(rule error, expected string) error {
	found := "the end of the text"
	if s.pos < len(s.text) {
		found = quote(string(s.text[s.pos:min(s.pos+20, len(s.text))]))
	}
	return s.failAt(s.pos, rule, found, expected)
}

func (s *scanner) failAt(pos int, rule error, found, expected string) error {
	return &FormatError{Rule: rule, Found: found, Expected: expected, Offset: s.base + int64(pos)}
}

// plainPrefix returns the position, from i on, of the first byte that ends the
// literal text of a string: a quote, a backslash or a control character. It
// processes eight bytes at a time, because most of a header is names.
func plainPrefix(text []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for i+8 <= len(text) {
		w := binary.LittleEndian.Uint64(text[i:])
		quote, slash := w^'"'*ones, w^'\\'*ones
		// x-ones sets the high bit of the lowest zero byte of x, w-' '*ones
		// that of the lowest byte below ' '; bits above it may be wrong.
		if special := ((quote-ones)&^quote | (slash-ones)&^slash | (w-' '*ones)&^w) & highs; special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
		i += 8
	}
	for i < len(text) && text[i] != '"' && text[i] != '\\' && text[i] >= ' ' {
		i++
	}
	return i
}
