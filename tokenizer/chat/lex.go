package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenData
	tokenPrintBegin // {{
	tokenPrintEnd
	tokenTagBegin // {%
	tokenTagEnd
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

type token struct {
	kind tokenKind
	text string // value of a string, source of other tokens
	line int
}

// lex splits a template into tokens, with the white space rules that chat templates are
// written for: a line break after a tag is removed (trim_blocks), and so is white space
// before a tag at the start of its line (lstrip_blocks).
func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{source: source, line: 1, lineStarting: true}
	for l.pos < len(l.source) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(tokenEnd, "end of template")
	return l.tokens, nil
}

type lexer struct {
	source       string
	pos, line    int
	lineStarting bool // the previous text ended with a line break
	tokens       []token
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// skip advances by n bytes, counting lines.
func (l *lexer) skip(n int) {
	part := l.source[l.pos : l.pos+n]
	l.line += strings.Count(part, "\n")
	if n > 0 {
		l.lineStarting = strings.HasSuffix(part, "\n")
	}
	l.pos += n
}

func (l *lexer) rest() string { return l.source[l.pos:] }

// root reads text up to the next {{, {% or {#, and the whole tag or comment.
func (l *lexer) root() error {
	rest := l.rest()
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 == len(rest) {
			l.emit(tokenData, rest)
			l.skip(len(rest))
			return nil
		}
		at += i
		if c := rest[at+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		at++
	}
	kind := rest[at+1]
	data := rest[:at]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	if data = l.leading(data, kind, sign); data != "" {
		l.emit(tokenData, data)
	}
	l.skip(at)
	start := l.line
	open := 2
	if sign != 0 {
		open = 3
	}
	l.skip(open)
	switch kind {
	case '#':
		return l.comment(start)
	case '{':
		l.emit(tokenPrintBegin, "{{")
		return l.expression(start, "}}", tokenPrintEnd)
	}
	if n := l.rawTag("raw", l.rest()); n > 0 {
		// A line break after {% raw %} is kept.
		closing := l.rest()[:n]
		l.skip(n)
		if strings.HasSuffix(closing, "-%}") {
			l.skipSpace()
		}
		return l.raw(start)
	}
	l.emit(tokenTagBegin, "{%")
	return l.expression(start, "%}", tokenTagEnd)
}

// leading returns the text before a tag, with white space removed as the tag
// requires.
func (l *lexer) leading(data string, kind, sign byte) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(data, isPythonSpace)
	case sign == '+' || kind == '{':
		return data
	}
	lineStart := strings.LastIndexByte(data, '\n') + 1
	if (lineStart > 0 || l.lineStarting) && strings.TrimFunc(data[lineStart:], isPythonSpace) == "" {
		return data[:lineStart]
	}
	return data
}

func (l *lexer) skipSpace() {
	rest := l.rest()
	l.skip(len(rest) - len(strings.TrimLeftFunc(rest, isPythonSpace)))
}

// trim removes white space after the end of a tag or comment.
func (l *lexer) trim(sign byte) {
	switch {
	case sign == '-':
		l.skipSpace()
	case sign != '+' && strings.HasPrefix(l.rest(), "\n"):
		l.skip(1)
	}
}

func (l *lexer) comment(start int) error {
	end := strings.Index(l.rest(), "#}")
	if end < 0 {
		return syntaxError(start, "comment without end")
	}
	sign := byte(0)
	if end > 0 {
		sign = l.rest()[end-1]
	}
	l.skip(end + 2)
	l.trim(sign)
	return nil
}

// rawTag returns the length of a tag's rest at the start of s: name, surrounded by
// white space, and %}. It returns 0 if s does not match.
func (l *lexer) rawTag(name, s string) int {
	t := strings.TrimLeftFunc(s, isPythonSpace)
	t, ok := strings.CutPrefix(t, name)
	if !ok {
		return 0
	}
	t = strings.TrimLeftFunc(t, isPythonSpace)
	for _, end := range []string{"%}", "-%}", "+%}"} {
		if strings.HasPrefix(t, end) {
			return len(s) - len(t) + len(end)
		}
	}
	return 0
}

func (l *lexer) raw(start int) error {
	rest := l.rest()
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			return syntaxError(start, "raw without endraw")
		}
		at += i
		tag := rest[at+2:]
		sign := byte(0)
		if tag != "" && (tag[0] == '-' || tag[0] == '+') {
			sign, tag = tag[0], tag[1:]
		}
		n := l.rawTag("endraw", tag)
		if n == 0 {
			continue
		}
		if data := l.leading(rest[:at], '%', sign); data != "" {
			l.emit(tokenData, data)
		}
		end := len(rest) - len(tag) + n
		l.skip(end)
		l.trim(rest[end-3])
		return nil
	}
}

// expression reads the tokens up to the closing }} or %}.
func (l *lexer) expression(start int, closing string, endKind tokenKind) error {
	var open []byte // open brackets
	for l.pos < len(l.source) {
		rest := l.rest()
		if len(open) == 0 {
			sign := rest[0]
			signed := (sign == '-' || sign == '+' && closing == "%}") && strings.HasPrefix(rest[1:], closing)
			if signed || strings.HasPrefix(rest, closing) {
				l.emit(endKind, closing)
				if signed {
					l.skip(1)
				} else {
					sign = 0
				}
				l.skip(len(closing))
				if closing == "%}" {
					l.trim(sign)
				} else if sign == '-' {
					l.skipSpace()
				}
				return nil
			}
		}
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case isPythonSpace(r):
			l.skip(size)
		case '0' <= r && r <= '9':
			if err := l.numeral(); err != nil {
				return err
			}
		case r == '\'' || r == '"':
			if err := l.str(byte(r)); err != nil {
				return err
			}
		case r == '_' || unicode.IsLetter(r):
			n := strings.IndexFunc(rest, func(r rune) bool { return r != '_' && !unicode.In(r, unicode.L, unicode.Nd, unicode.M) })
			if n < 0 {
				n = len(rest)
			}
			l.emit(tokenName, rest[:n])
			l.skip(n)
		default:
			op := operatorAt(rest)
			if op == "" {
				return syntaxError(l.line, "unexpected character %q", r)
			}
			switch op {
			case "(", "[", "{":
				open = append(open, op[0])
			case ")", "]", "}":
				if len(open) == 0 || !strings.Contains("()[]{}", string(open[len(open)-1])+op) {
					return syntaxError(l.line, "unexpected %q", op)
				}
				open = open[:len(open)-1]
			}
			l.emit(tokenOperator, op)
			l.skip(len(op))
		}
	}
	return syntaxError(start, "no %q before the end of the template", closing)
}

func operatorAt(s string) string {
	for _, op := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	if strings.IndexByte("+-/*%~[](){}><=.:|,;", s[0]) >= 0 {
		return s[:1]
	}
	return ""
}

func isPythonSpace(r rune) bool {
	return unicode.IsSpace(r) || 0x1C <= r && r <= 0x1F
}
