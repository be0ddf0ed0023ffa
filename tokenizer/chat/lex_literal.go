package chat

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	floatForm   = regexp.MustCompile(`^[0-9](_?[0-9])*((\.[0-9](_?[0-9])*)?[eE][+-]?[0-9](_?[0-9])*|\.[0-9](_?[0-9])*)`)
	integerForm = regexp.MustCompile(`^(0[bB](_?[01])+|0[oO](_?[0-7])+|0[xX](_?[0-9a-fA-F])+|[1-9](_?[0-9])*|0(_?0)*)`)
)

// numeral reads a number.
func (l *lexer) numeral() error {
	rest := l.rest()
	// A float cannot follow a dot: x.1.2 are two subscripts.
	afterDot := l.pos > 0 && l.source[l.pos-1] == '.'
	if f := floatForm.FindString(rest); f != "" && !afterDot {
		l.emit(tokenFloat, strings.ReplaceAll(f, "_", ""))
		l.skip(len(f))
		return nil
	}
	n := integerForm.FindString(rest)
	if n == "" {
		return syntaxError(l.line, "malformed number")
	}
	l.emit(tokenInteger, strings.ReplaceAll(n, "_", ""))
	l.skip(len(n))
	return nil
}

// str reads a string with Python's escapes.
func (l *lexer) str(q byte) error {
	rest := l.rest()
	var b []byte
	for i := 1; i < len(rest); {
		switch c := rest[i]; c {
		case q:
			l.emit(tokenString, string(b))
			l.skip(i + 1)
			return nil
		case '\\':
			var n int
			b, n = appendEscaped(b, rest[i+1:])
			if n < 0 {
				return syntaxError(l.line, "malformed escape in a string")
			}
			i += 1 + n
		default:
			b = append(b, c)
			i++
		}
	}
	return syntaxError(l.line, "string without end")
}

// appendEscaped appends the character for the escape sequence \s and returns the length
// of s, or -1.
func appendEscaped(b []byte, s string) ([]byte, int) {
	if s == "" {
		return b, -1
	}
	const simple = "abfnrtv\\'\""
	if i := strings.IndexByte(simple, s[0]); i >= 0 {
		return append(b, "\a\b\f\n\r\t\v\\'\""[i]), 1
	}
	digits := 0
	switch c := s[0]; {
	case c == '\n':
		return b, 1
	case c == 'x':
		digits = 2
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	case '0' <= c && c <= '7':
		n := 1
		for n < 3 && n < len(s) && '0' <= s[n] && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[:n], 8, 32)
		return utf8.AppendRune(b, rune(v)), n
	case c == 'N':
		return b, -1
	default: // not an escape
		return append(b, '\\'), 0
	}
	if len(s) < 1+digits {
		return b, -1
	}
	v, err := strconv.ParseUint(s[1:1+digits], 16, 32)
	if err != nil || v > utf8.MaxRune {
		return b, -1
	}
	return utf8.AppendRune(b, rune(v)), 1 + digits
}
