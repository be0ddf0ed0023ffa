package chat

import (
	"slices"
	"strconv"
)

// mutators lists the methods that would change a value, which templates must
// not do.
var mutators = map[string][]string{
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// getAttr evaluates object.name: an attribute or method, or else an item.
func getAttr(object any, name string) (any, error) {
	if u, ok := object.(*undefined); ok {
		return nil, u.fail()
	}
	if v, ok := attribute(object, name); ok {
		return v, nil
	}
	if d, ok := object.(*dict); ok {
		if v, ok := d.get(name); ok {
			return v, nil
		}
	}
	return &undefined{"'" + typeName(object) + "' attribute '" + name + "'"}, nil
}

// getItem evaluates object[key]: an item, or else an attribute.
func (in *meter) getItem(object, key any) (any, error) {
	switch o := object.(type) {
	case *undefined:
		return nil, o.fail()
	case *dict:
		if v, ok := o.find(in, key); ok {
			return v, nil
		}
	case string:
		if s, ok := key.(slice); ok {
			if err := in.spend(int64(len(o)), 16); err != nil { // runes and indices
				return nil, err
			}
			chars := []rune(o)
			indices, err := s.indices(len(chars))
			if err != nil {
				return nil, err
			}
			out := make([]rune, len(indices))
			for i, j := range indices {
				out[i] = chars[j]
			}
			return string(out), nil
		}
		if i, ok := integer(key); ok {
			if err := in.spend(int64(len(o)), 4); err != nil {
				return nil, err
			}
			chars := []rune(o)
			if i, ok = position(i, len(chars)); ok {
				return string(chars[i]), nil
			}
		}
	case []any:
		return in.listItem(o, key, func(l []any) any { return l })
	case tuple:
		return in.listItem(o, key, func(l []any) any { return tuple(l) })
	case progression:
		list, err := in.items(o)
		if err != nil {
			return nil, err
		}
		return in.listItem(list, key, func(l []any) any { return l })
	}
	if _, ok := key.(slice); ok {
		return nil, typeError("a %s cannot be sliced", typeName(object))
	}
	if name, ok := key.(string); ok {
		if v, ok := attribute(object, name); ok {
			return v, nil
		}
	}
	return &undefined{typeName(object) + " item " + keyName(key)}, nil
}

// keyName formats a key for an error message.
func keyName(key any) string {
	switch key := key.(type) {
	case string:
		return brief(key)
	case int64:
		return strconv.FormatInt(key, 10)
	}
	return "of a " + typeName(key)
}

func (in *meter) listItem(list []any, key any, wrap func([]any) any) (any, error) {
	if s, ok := key.(slice); ok {
		if err := in.spend(int64(len(list)), itemBytes+8); err != nil {
			return nil, err
		}
		indices, err := s.indices(len(list))
		if err != nil {
			return nil, err
		}
		out := make([]any, len(indices))
		for i, j := range indices {
			out[i] = list[j]
		}
		return wrap(out), nil
	}
	if i, ok := integer(key); ok {
		if i, ok = position(i, len(list)); ok {
			return list[i], nil
		}
	}
	if name, ok := key.(string); ok {
		if v, ok := attribute(wrap(list), name); ok {
			return v, nil
		}
	}
	return &undefined{"list item " + keyName(key)}, nil
}

// position resolves an index, which may be negative to count from the end.
func position(i int64, n int) (int64, bool) {
	if i < 0 {
		i += int64(n)
	}
	return i, 0 <= i && i < int64(n)
}

// indices returns the indices that the slice selects from n items.
func (s slice) indices(n int) ([]int, error) {
	step, err := intOr(s.step, 1)
	if err != nil {
		return nil, err
	}
	if step == 0 {
		return nil, typeError("the step of a slice is 0")
	}
	low, high := int64(0), int64(n)
	first, last := low, high
	if step < 0 {
		low, high = -1, int64(n)-1
		first, last = high, low
	}
	bound := func(v any, fallback int64) (int64, error) {
		if v == nil {
			return fallback, nil
		}
		i, err := intOr(v, 0)
		if i < 0 {
			i += int64(n)
		}
		return min(max(i, low), high), err
	}
	start, err := bound(s.start, first)
	if err != nil {
		return nil, err
	}
	stop, err := bound(s.stop, last)
	if err != nil {
		return nil, err
	}
	var out []int
	step = min(max(step, -int64(n)-1), int64(n)+1)
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, int(i))
	}
	return out, nil
}

// attribute returns an attribute or method that the value has in Python.
func attribute(object any, name string) (any, bool) {
	switch o := object.(type) {
	case string:
		if m, ok := strMethods[name]; ok {
			return &function{name, func(in *interpreter, args *arguments) (any, error) { return m(in.meter, o, args) }}, true
		}
	case *dict:
		if m, ok := dictMethods[name]; ok {
			return &function{name, func(in *interpreter, args *arguments) (any, error) { return m(in.meter, o, args) }}, true
		}
	case []any:
		if m, ok := listMethods[name]; ok {
			return &function{name, func(in *interpreter, args *arguments) (any, error) { return m(in.meter, o, args) }}, true
		}
	case tuple:
		return attribute([]any(o), name)
	case *namespace:
		return o.attrs.get(name)
	case *loop:
		return o.attr(name)
	case *macro:
		if name == "name" {
			return o.name, true
		}
	}
	if slices.Contains(mutators[typeName(object)], name) {
		return &undefined{"the method '" + name + "', which changes a " + typeName(object) + ","}, true
	}
	return nil, false
}

var dictMethods = map[string]func(*meter, *dict, *arguments) (any, error){
	"keys": func(in *meter, d *dict, args *arguments) (any, error) {
		_, err := args.bind("keys")
		return &view{"dict_keys", d.keys}, err
	},
	"values": func(in *meter, d *dict, args *arguments) (any, error) {
		_, err := args.bind("values")
		return &view{"dict_values", d.values}, err
	},
	"items": func(in *meter, d *dict, args *arguments) (any, error) {
		if _, err := args.bind("items"); err != nil {
			return nil, err
		}
		if err := in.spend(int64(len(d.keys)), partBytes+2*itemBytes); err != nil {
			return nil, err
		}
		return &view{"dict_items", d.pairs()}, nil
	},
	"copy": func(in *meter, d *dict, args *arguments) (any, error) {
		_, err := args.bind("copy")
		return d, err
	},
	"get": func(in *meter, d *dict, args *arguments) (any, error) {
		v, err := args.bind("get", "key", "default?")
		if err != nil {
			return nil, err
		}
		if _, ok := hashable(in, v[0]); !ok {
			return nil, typeError("a %s cannot be the key of a dict", typeName(v[0]))
		}
		if found, ok := d.find(in, v[0]); ok {
			return found, nil
		}
		if v[1] == absent {
			return nil, nil
		}
		return v[1], nil
	},
}

var listMethods = map[string]func(*meter, []any, *arguments) (any, error){
	"index": func(in *meter, list []any, args *arguments) (any, error) {
		v, err := args.bind("index", "value")
		if err != nil {
			return nil, err
		}
		for i, item := range list {
			if err := in.spend(1, itemBytes); err != nil {
				return nil, err
			}
			if in.equal(item, v[0]) {
				return int64(i), nil
			}
		}
		return nil, typeError("the value, a %s, is not in the list", typeName(v[0]))
	},
	"count": func(in *meter, list []any, args *arguments) (any, error) {
		v, err := args.bind("count", "value")
		if err != nil {
			return nil, err
		}
		n := int64(0)
		for _, item := range list {
			if err := in.spend(1, itemBytes); err != nil {
				return nil, err
			}
			if in.equal(item, v[0]) {
				n++
			}
		}
		return n, nil
	},
	"copy": func(in *meter, list []any, args *arguments) (any, error) {
		_, err := args.bind("copy")
		return list, err
	},
}
