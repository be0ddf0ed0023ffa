package chat

import (
	"strings"
	"unicode/utf8"
)

// Values of the template language are nil (None), bool, int64, float64, string, []any (list),
// tuple, *dict and the types below. Lists and dictionaries are immutable, so only a namespace
// can contain itself.
type (
	tuple []any

	// undefined is the value of a name without a value: empty in text, an error
	// elsewhere.
	undefined struct{ what string }

	// namespace is the only mutable value.
	namespace struct{ attrs *dict }

	// iterator is a Python generator: truthy, without a length, consumed by iterating.
	iterator struct{ items []any }

	// view is the result of a dictionary's keys(), values() or items().
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
	case tuple:
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

// items returns the items of an iteration over a value.
func (in *meter) items(v any) ([]any, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, nil
	case string:
		if err := in.spend(int64(len(v)), partBytes); err != nil {
			return nil, err
		}
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
	case *iterator:
		out := v.items
		v.items = nil
		return out, nil
	case progression:
		if err := in.spend(v.n, itemBytes); err != nil {
			return nil, err
		}
		out := make([]any, v.n)
		for i := range out {
			out[i] = v.at(int64(i))
		}
		return out, nil
	}
	return nil, typeError("%s is not iterable", typeName(v))
}

func (in *meter) length(v any) (int64, error) {
	switch v := v.(type) {
	case *undefined:
		return 0, nil
	case string:
		return int64(utf8.RuneCountInString(v)), in.read(v)
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
	}
	return 0, typeError("%s has no length", typeName(v))
}

// number returns a bool, int or float as float64.
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

// integer returns a bool or int as int64.
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

func (in *meter) equal(a, b any) bool {
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
		return ok && len(a) == len(s) && in.read(a) == nil && a == s
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case []any:
		l, ok := b.([]any)
		return ok && in.equalItems(a, l)
	case tuple:
		l, ok := b.(tuple)
		return ok && in.equalItems(a, l)
	case *dict:
		d, ok := b.(*dict)
		if !ok || len(a.keys) != len(d.keys) || in.enter() != nil {
			return false
		}
		defer in.leave()
		for i, key := range a.keys {
			other, ok := d.find(in, key)
			if !ok || !in.equal(a.values[i], other) {
				return false
			}
		}
		return true
	case progression:
		return a == b
	case *view, *iterator, *namespace, *function, *macro, *loop:
		return a == b
	}
	return false
}

func (in *meter) equalItems(a, b []any) bool {
	if len(a) != len(b) || in.enter() != nil {
		return false
	}
	defer in.leave()
	for i := range a {
		if in.spend(1, itemBytes) != nil || !in.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// compare orders two values of the same kind.
func (in *meter) compare(a, b any) (int, error) {
	if err := in.spend(1, itemBytes); err != nil {
		return 0, err
	}
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
			return strings.Compare(a, b), in.read(a[:min(len(a), len(b))])
		}
	case []any:
		if b, ok := b.([]any); ok {
			return in.compareItems(a, b)
		}
	case tuple:
		if b, ok := b.(tuple); ok {
			return in.compareItems(a, b)
		}
	case *undefined:
		return 0, a.fail()
	}
	if u, ok := b.(*undefined); ok {
		return 0, u.fail()
	}
	return 0, typeError("%s and %s have no order", typeName(a), typeName(b))
}

func (in *meter) compareItems(a, b []any) (int, error) {
	if err := in.enter(); err != nil {
		return 0, err
	}
	defer in.leave()
	for i := range min(len(a), len(b)) {
		if in.equal(a[i], b[i]) {
			continue
		}
		return in.compare(a[i], b[i])
	}
	return len(a) - len(b), nil
}
