package chat

import (
	"slices"
	"strconv"
	"strings"
)

// getter returns a function for the key to sort, group or sum by: an attribute of an item,
// which may contain dots, or without attribute the item itself.
func (in *meter) getter(attribute, fallback any, ignoreCase bool) (func(any) (any, error), error) {
	var path []any
	switch a := attribute.(type) {
	case int64:
		path = []any{a}
	case string:
		if err := in.spend(int64(len(a)), itemBytes); err != nil {
			return nil, err
		}
		for _, part := range strings.Split(a, ".") {
			if i, err := strconv.ParseInt(part, 10, 64); err == nil && part[0] != '-' && part[0] != '+' {
				path = append(path, i)
			} else {
				path = append(path, part)
			}
		}
	default:
		if attribute != absent && attribute != nil {
			return nil, typeError("an attribute given as %s", typeName(attribute))
		}
	}
	return func(v any) (any, error) {
		if err := in.spend(int64(len(path))+1, itemBytes); err != nil {
			return nil, err
		}
		for _, key := range path {
			var err error
			if v, err = in.getItem(v, key); err != nil {
				return nil, err
			}
			if _, ok := v.(*undefined); ok && fallback != absent && fallback != nil {
				v = fallback
			}
		}
		if s, ok := v.(string); ok && ignoreCase {
			return in.changed(s, lower)
		}
		return v, nil
	}, nil
}

func attrFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("attr", "name")
	if err != nil {
		return nil, err
	}
	name, err := strOr(p[0], "")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if a, ok := attribute(v, name); ok {
		return a, nil
	}
	return &undefined{typeName(v) + " attribute '" + name + "'"}, nil
}

// sorted sorts stably by keys.
func (in *meter) sorted(list []any, key func(any) (any, error), reverse bool) ([]any, error) {
	type entry struct{ item, key any }
	if err := in.spend(int64(len(list)), partBytes); err != nil {
		return nil, err
	}
	entries := make([]entry, len(list))
	for i, item := range list {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		entries[i] = entry{item, k}
	}
	var failed error
	slices.SortStableFunc(entries, func(a, b entry) int {
		c, err := in.compare(a.key, b.key)
		if err != nil {
			failed = err
		}
		if reverse {
			return -c
		}
		return c
	})
	out := make([]any, len(entries))
	for i, e := range entries {
		out[i] = e.item
	}
	return out, failed
}

func dictsortFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("dictsort", "case_sensitive?", "by?", "reverse?")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, typeError("dictsort of a %s", typeName(v))
	}
	by, err := strOr(p[1], "key")
	if err != nil {
		return nil, err
	}
	pos := int64(0)
	if by == "value" {
		pos = 1
	} else if by != "key" {
		return nil, typeError("dictsort by %q; known are key and value", by)
	}
	key, err := in.getter(pos, absent, !truthOr(p[0], false))
	if err != nil {
		return nil, err
	}
	if err := in.spend(int64(len(d.keys)), partBytes+2*itemBytes); err != nil {
		return nil, err
	}
	return in.sorted(d.pairs(), key, truthOr(p[2], false))
}

func sortFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("sort", "reverse?", "case_sensitive?", "attribute?")
	if err != nil {
		return nil, err
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	ignoreCase := !truthOr(p[1], false)
	var key func(any) (any, error)
	if s, ok := p[2].(string); ok && strings.Contains(s, ",") {
		var keys []func(any) (any, error)
		for _, part := range strings.Split(s, ",") {
			k, err := in.getter(part, absent, ignoreCase)
			if err != nil {
				return nil, err
			}
			keys = append(keys, k)
		}
		key = func(v any) (any, error) {
			if err := in.spend(int64(len(keys)), itemBytes); err != nil {
				return nil, err
			}
			var all []any
			for _, k := range keys {
				part, err := k(v)
				if err != nil {
					return nil, err
				}
				all = append(all, part)
			}
			return all, nil
		}
	} else if key, err = in.getter(p[2], absent, ignoreCase); err != nil {
		return nil, err
	}
	return in.sorted(list, key, truthOr(p[0], false))
}

func uniqueFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("unique", "case_sensitive?", "attribute?")
	if err != nil {
		return nil, err
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	key, err := in.getter(p[1], absent, !truthOr(p[0], false))
	if err != nil {
		return nil, err
	}
	seen := newDict()
	var out []any
	for _, item := range list {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		if err := in.spend(1, entryBytes); err != nil {
			return nil, err
		}
		if _, ok := seen.find(in.meter, k); ok {
			continue
		}
		if err := seen.set(in.meter, k, nil); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return &iterator{out}, nil
}

func extremeFilter(name string, sign int) filter {
	return func(in *interpreter, v any, args *arguments) (any, error) {
		p, err := args.bind(name, "case_sensitive?", "attribute?")
		if err != nil {
			return nil, err
		}
		list, err := in.items(v)
		if err != nil {
			return nil, err
		}
		key, err := in.getter(p[1], absent, !truthOr(p[0], false))
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return &undefined{name + " of nothing"}, nil
		}
		best := list[0]
		for _, item := range list[1:] {
			a, err := key(item)
			if err != nil {
				return nil, err
			}
			b, err := key(best)
			if err != nil {
				return nil, err
			}
			c, err := in.compare(a, b)
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best = item
			}
		}
		return best, nil
	}
}

func sumFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("sum", "attribute?", "start?")
	if err != nil {
		return nil, err
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	key, err := in.getter(p[0], absent, false)
	if err != nil {
		return nil, err
	}
	total := p[1]
	if total == absent {
		total = int64(0)
	}
	for _, item := range list {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		if total, err = in.operate("+", total, k); err != nil {
			return nil, err
		}
	}
	return total, nil
}
