package chat

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// text implements Python's str().
func (in *meter) text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *undefined:
		return ""
	}
	return in.repr(v)
}

// repr implements Python's repr().
func (in *meter) repr(v any) string {
	var b strings.Builder
	in.appendRepr(&b, v)
	return b.String()
}

func (in *meter) appendRepr(b *strings.Builder, v any) {
	if in.enter() != nil {
		in.leave()
		return
	}
	defer in.leave()
	add := func(s string) {
		if in.read(s) == nil {
			b.WriteString(s)
		}
	}
	list := func(before string, values []any, after string) {
		add(before)
		for i, v := range values {
			if in.err != nil {
				return
			}
			if i > 0 {
				add(", ")
			}
			in.appendRepr(b, v)
		}
		add(after)
	}
	switch v := v.(type) {
	case nil:
		add("None")
	case bool:
		if v {
			add("True")
		} else {
			add("False")
		}
	case int64:
		add(strconv.FormatInt(v, 10))
	case float64:
		add(floatText(v))
	case string:
		if in.read(v) == nil {
			add(quote(v))
		}
	case *undefined:
		add("Undefined")
	case []any:
		list("[", v, "]")
	case tuple:
		if len(v) == 1 {
			list("(", v, ",)")
		} else {
			list("(", v, ")")
		}
	case *dict:
		in.reprDict(b, v)
	case *view:
		list(v.name+"([", v.items, "])")
	case progression:
		if v.step == 1 {
			add(fmt.Sprintf("range(%d, %d)", v.start, v.stop))
		} else {
			add(fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step))
		}
	case *namespace:
		if slices.Contains(in.open, v) { // Python abbreviates values that contain themselves
			add("<Namespace {...}>")
			return
		}
		in.open = append(in.open, v)
		add("<Namespace ")
		in.reprDict(b, v.attrs)
		add(">")
		in.open = in.open[:len(in.open)-1]
	default:
		add("<" + typeName(v) + ">")
	}
}

func (in *meter) reprDict(b *strings.Builder, d *dict) {
	b.WriteByte('{')
	for i, key := range d.keys {
		if in.err != nil {
			return
		}
		if i > 0 {
			b.WriteString(", ")
		}
		in.appendRepr(b, key)
		b.WriteString(": ")
		in.appendRepr(b, d.values[i])
	}
	b.WriteByte('}')
}

// floatText returns Python's repr of a float: the shortest decimal that parses to the
// same value.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exp)
	if e < -4 || e >= 16 {
		return fmt.Sprintf("%se%+03d", mantissa, e)
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote returns Python's repr of a string.
func quote(s string) string {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b := []byte{q}
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == ' ' || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return string(append(b, q))
}
