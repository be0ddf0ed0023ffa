package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// numberStyle is the specification of a format: Python's "%-08.3f".
type numberStyle struct {
	fill      rune
	align     byte // one of < > =
	sign      byte // '+' or ' ', otherwise 0
	alternate bool
	width     int
	precision int // -1 if omitted
	verb      byte
}

const maxWidth = 1 << 20

// percentFormat implements the % operator of Python's str.
func (in *meter) percentFormat(format string, v any) (any, error) {
	args := []any{v}
	if t, ok := v.(tuple); ok {
		args = t
	}
	named, _ := v.(*dict)
	used := 0
	next := func() (any, error) {
		if used >= len(args) {
			return nil, typeError("not enough arguments for the format %s", brief(format))
		}
		used++
		return args[used-1], nil
	}
	if err := in.read(format); err != nil {
		return nil, err
	}
	var b strings.Builder
	for i := 0; i < len(format); {
		if format[i] != '%' {
			b.WriteByte(format[i])
			i++
			continue
		}
		i++
		var arg any
		hasArg := false
		if strings.HasPrefix(format[i:], "(") {
			end := strings.IndexByte(format[i:], ')')
			if end < 0 || named == nil {
				return nil, typeError("the format %s needs a dict", brief(format))
			}
			var ok bool
			if arg, ok = named.get(format[i+1 : i+end]); !ok {
				return nil, typeError("the format %s: no key %s", brief(format), brief(format[i+1:i+end]))
			}
			hasArg = true
			i += end + 1
		}
		st := numberStyle{fill: ' ', align: '>', precision: -1}
		for ; i < len(format) && strings.IndexByte("-+ 0#", format[i]) >= 0; i++ {
			switch format[i] {
			case '-':
				st.align = '<'
			case '+':
				st.sign = '+'
			case ' ':
				if st.sign == 0 {
					st.sign = ' '
				}
			case '0':
				st.fill = '0'
			case '#':
				st.alternate = true
			}
		}
		if st.fill == '0' {
			if st.align == '<' {
				st.fill = ' '
			} else {
				st.align = '='
			}
		}
		var err error
		if i, err = in.readCount(format, i, &st.width, next); err != nil {
			return nil, err
		}
		if i < len(format) && format[i] == '.' {
			st.precision = 0
			if i, err = in.readCount(format, i+1, &st.precision, next); err != nil {
				return nil, err
			}
		}
		if i == len(format) {
			return nil, typeError("the format %s ends within a conversion", brief(format))
		}
		st.verb = format[i]
		i++
		if st.verb == '%' {
			b.WriteByte('%')
			continue
		}
		if !hasArg {
			if arg, err = next(); err != nil {
				return nil, err
			}
		}
		s, err := in.percent(st, arg)
		if err != nil {
			return nil, err
		}
		if err := in.read(s); err != nil {
			return nil, err
		}
		b.WriteString(s)
	}
	if used < len(args) && named == nil && (used > 0 || !isPlainEmpty(v)) {
		return nil, typeError("not all arguments are used by the format %s", brief(format))
	}
	return b.String(), nil
}

// isPlainEmpty reports whether a value may be passed to a format without
// conversions.
func isPlainEmpty(v any) bool {
	switch v := v.(type) {
	case tuple:
		return len(v) == 0
	case []any:
		return true
	}
	return false
}

// readCount parses digits, or * for an argument.
func (in *meter) readCount(format string, i int, n *int, next func() (any, error)) (int, error) {
	if i < len(format) && format[i] == '*' {
		v, err := next()
		if err != nil {
			return i, err
		}
		count, ok := integer(v)
		if !ok || count < 0 || count > maxWidth {
			return i, typeError("a width of %s", keyName(v))
		}
		*n = int(count)
		return i + 1, nil
	}
	for ; i < len(format) && '0' <= format[i] && format[i] <= '9'; i++ {
		if *n = *n*10 + int(format[i]-'0'); *n > maxWidth {
			return i, typeError("a width of more than %d", maxWidth)
		}
	}
	return i, nil
}

func (in *meter) percent(st numberStyle, v any) (string, error) {
	switch st.verb {
	case 's', 'r', 'a':
		s := in.text(v)
		if st.verb != 's' {
			s = in.repr(v)
		}
		if st.align == '=' {
			st.align, st.fill = '>', ' '
		}
		return st.pad("", st.cut(s)), nil
	case 'c':
		if i, ok := integer(v); ok {
			return st.pad("", string(rune(i))), nil
		}
		s, err := strOr(v, "")
		return st.pad("", s), err
	case 'i', 'u':
		st.verb = 'd'
		fallthrough
	case 'd', 'x', 'X', 'o':
		if f, ok := v.(float64); ok && st.verb == 'd' {
			v = int64(f)
		}
		digits := st.precision
		st.precision = -1
		sign, s, err := st.digits(v)
		if missing := digits - len(s); missing > 0 {
			s = strings.Repeat("0", missing) + s
		}
		return st.pad(sign, s), err
	case 'f', 'F', 'e', 'E', 'g', 'G':
		sign, s, err := st.digits(v)
		return st.pad(sign, s), err
	}
	return "", typeError("unknown conversion %%%c", st.verb)
}

// digits returns the sign or prefix and the digits of a number.
func (st numberStyle) digits(v any) (sign, s string, err error) {
	f, ok := number(v)
	if !ok {
		if u, isUndefined := v.(*undefined); isUndefined {
			return "", "", u.fail()
		}
		return "", "", typeError("the conversion %c of a %s", st.verb, typeName(v))
	}
	if math.Signbit(f) && !math.IsNaN(f) {
		sign = "-"
	} else if st.sign != 0 {
		sign = string(st.sign)
	}
	switch st.verb {
	case 'd', 'x', 'X', 'o':
		i, ok := integer(v)
		if !ok {
			return "", "", typeError("the conversion %c of a %s", st.verb, typeName(v))
		}
		base := map[byte]int{'d': 10, 'x': 16, 'X': 16, 'o': 8}[st.verb]
		s = strconv.FormatUint(magnitude(i), base)
		if st.alternate && base != 10 {
			sign += "0" + string(st.verb)
		}
	default:
		s = st.float(math.Abs(f))
	}
	if st.verb == 'X' || st.verb == 'E' || st.verb == 'G' || st.verb == 'F' {
		s = strings.ToUpper(s)
	}
	return sign, s, nil
}

func (st numberStyle) float(f float64) string {
	if math.IsInf(f, 0) {
		return "inf"
	}
	if math.IsNaN(f) {
		return "nan"
	}
	precision := st.precision
	if precision < 0 {
		precision = 6
	}
	precision = min(precision, 400)
	switch st.verb {
	case 'f', 'F':
		return strconv.FormatFloat(f, 'f', precision, 64)
	case 'e', 'E':
		return strconv.FormatFloat(f, 'e', precision, 64)
	}
	// g: the given number of digits, without trailing zeros.
	precision = max(precision, 1)
	s := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exp)
	trim := func(s string) string {
		if !strings.Contains(s, ".") || st.alternate {
			return s
		}
		return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	if e < -4 || e >= precision {
		return fmt.Sprintf("%se%+03d", trim(mantissa), e)
	}
	return trim(strconv.FormatFloat(f, 'f', precision-1-e, 64))
}

// cut applies the precision to text.
func (st numberStyle) cut(s string) string {
	if st.precision >= 0 && utf8.RuneCountInString(s) > st.precision {
		return string([]rune(s)[:st.precision])
	}
	return s
}

// pad pads to the width.
func (st numberStyle) pad(sign, s string) string {
	missing := st.width - utf8.RuneCountInString(sign) - utf8.RuneCountInString(s)
	if missing <= 0 {
		return sign + s
	}
	fill := strings.Repeat(string(st.fill), missing)
	switch st.align {
	case '<':
		return sign + s + fill
	case '=':
		return sign + fill + s
	}
	return fill + sign + s
}
