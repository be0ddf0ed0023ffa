package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Values of the template language are nil (None), bool, int64, float64, string, []any (list),
// tuple, *dict and the types below. Lists and dictionaries do not change once made.
type (
	tuple []any

	// undefined is what names without a value give: empty in text, an error elsewhere.
	undefined struct{ what string }

	// namespace is the one thing that templates can change.
	namespace struct{ attrs *dict }

	// iterator is a Python generator: true, without a length, and used up by iterating.
	iterator struct{ items []any }

	// view is what a dictionary's keys(), values() and items() give.
	view struct {
		name  string
		items []any
	}

	// progression is a Python range.
	progression struct{ start, stop, step, n int64 }

	// function is a built-in function or a method bound to its value.
	function struct {
		name string
		call func(*interpreter, *arguments) (any, error)
	}
)

func (u *undefined) fail() error { return typeError("%s is undefined", u.what) }

func (p progression) at(i int64) any { return p.start + i*p.step }

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []any:
		return "list"
	case tuple, *group:
		return "tuple"
	case *dict:
		return "dict"
	case *undefined:
		return "undefined"
	case *namespace:
		return "namespace"
	case *iterator:
		return "generator"
	case *view:
		return "dict view"
	case progression:
		return "range"
	case *macro:
		return "macro"
	case *loop:
		return "loop"
	}
	return "function"
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case tuple:
		return len(v) > 0
	case *dict:
		return len(v.keys) > 0
	case *view:
		return len(v.items) > 0
	case progression:
		return v.n > 0
	}
	return true
}

// items gives what iterating over a value gives.
func items(v any) ([]any, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, nil
	case string:
		out := make([]any, 0, len(v))
		for _, r := range v {
			out = append(out, string(r))
		}
		return out, nil
	case []any:
		return v, nil
	case tuple:
		return v, nil
	case *dict:
		return v.keys, nil
	case *view:
		return v.items, nil
	case *group:
		return []any{v.grouper, v.list}, nil
	case *iterator:
		out := v.items
		v.items = nil
		return out, nil
	case progression:
		out := make([]any, v.n)
		for i := range out {
			out[i] = v.at(int64(i))
		}
		return out, nil
	}
	return nil, typeError("%s is not iterable", typeName(v))
}

func length(v any) (int64, error) {
	switch v := v.(type) {
	case *undefined:
		return 0, nil
	case string:
		return int64(utf8.RuneCountInString(v)), nil
	case []any:
		return int64(len(v)), nil
	case tuple:
		return int64(len(v)), nil
	case *dict:
		return int64(len(v.keys)), nil
	case *view:
		return int64(len(v.items)), nil
	case progression:
		return v.n, nil
	case *loop:
		return int64(len(v.items)), nil
	case *group:
		return 2, nil
	}
	return 0, typeError("%s has no length", typeName(v))
}

// number gives the value of bool, int and float as float64.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// integer gives the value of bool and int.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

func equal(a, b any) bool {
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return i == j
		}
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case []any:
		l, ok := b.([]any)
		return ok && equalItems(a, l)
	case tuple:
		l, ok := b.(tuple)
		return ok && equalItems(a, l)
	case *dict:
		d, ok := b.(*dict)
		if !ok || len(a.keys) != len(d.keys) {
			return false
		}
		for i, key := range a.keys {
			other, ok := d.get(key)
			if !ok || !equal(a.values[i], other) {
				return false
			}
		}
		return true
	case progression:
		return a == b
	case *view, *iterator, *namespace, *function, *macro, *loop, *group, *cycler:
		return a == b
	}
	return false
}

func equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// compare orders two values of a kind.
func compare(a, b any) (int, error) {
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			switch {
			case x < y:
				return -1, nil
			case x > y:
				return 1, nil
			}
			return 0, nil
		}
	}
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b), nil
		}
	case []any:
		if b, ok := b.([]any); ok {
			return compareItems(a, b)
		}
	case tuple:
		if b, ok := b.(tuple); ok {
			return compareItems(a, b)
		}
	case *undefined:
		return 0, a.fail()
	}
	if u, ok := b.(*undefined); ok {
		return 0, u.fail()
	}
	return 0, typeError("%s and %s have no order", typeName(a), typeName(b))
}

func compareItems(a, b []any) (int, error) {
	for i := range min(len(a), len(b)) {
		if equal(a[i], b[i]) {
			continue
		}
		return compare(a[i], b[i])
	}
	return len(a) - len(b), nil
}

// text is Python's str().
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case *undefined:
		return ""
	}
	return repr(v)
}

// repr is Python's repr().
func repr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case string:
		return quote(v)
	case *undefined:
		return "Undefined"
	case []any:
		return "[" + joinRepr(v) + "]"
	case tuple:
		if len(v) == 1 {
			return "(" + repr(v[0]) + ",)"
		}
		return "(" + joinRepr(v) + ")"
	case *group:
		return repr(tuple{v.grouper, v.list})
	case *dict:
		return v.repr()
	case *view:
		return v.name + "([" + joinRepr(v.items) + "])"
	case progression:
		if v.step == 1 {
			return fmt.Sprintf("range(%d, %d)", v.start, v.stop)
		}
		return fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step)
	case *namespace:
		return "<Namespace " + v.attrs.repr() + ">"
	}
	return "<" + typeName(v) + ">"
}

func joinRepr(values []any) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = repr(v)
	}
	return strings.Join(parts, ", ")
}

// floatText is Python's repr of a float: the shortest decimal that reads back the same.
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

// quote is Python's repr of a string.
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
