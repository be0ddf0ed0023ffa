package chat

import (
	"slices"
	"strings"
)

func firstFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("first"); err != nil {
		return nil, err
	}
	if it, ok := v.(*iterator); ok { // consume a single item
		if len(it.items) == 0 {
			return &undefined{"the first of nothing"}, nil
		}
		item := it.items[0]
		it.items = it.items[1:]
		return item, nil
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return &undefined{"the first of nothing"}, nil
	}
	return list[0], nil
}

func lastFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("last"); err != nil {
		return nil, err
	}
	list, err := in.backwards(v)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return &undefined{"the last of nothing"}, nil
	}
	return list[0], nil
}

// backwards implements Python's reversed(), which rejects generators.
func (in *meter) backwards(v any) ([]any, error) {
	if _, ok := v.(*iterator); ok {
		return nil, typeError("a generator has no end to begin with; make it a list first")
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	return in.turned(list)
}

func (in *meter) turned(list []any) ([]any, error) {
	if err := in.spend(int64(len(list)), itemBytes); err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	return list, nil
}

func reverseFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("reverse"); err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		if err := in.spend(int64(len(s)), 4); err != nil {
			return nil, err
		}
		chars := []rune(s)
		slices.Reverse(chars)
		return string(chars), nil
	}
	if it, ok := v.(*iterator); ok {
		list, err := in.items(it)
		if err != nil {
			return nil, err
		}
		list, err = in.turned(list)
		return list, err
	}
	list, err := in.backwards(v)
	return &iterator{list}, err
}

func listFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("list"); err != nil {
		return nil, err
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	if err := in.spend(int64(len(list)), itemBytes); err != nil {
		return nil, err
	}
	return append([]any{}, list...), nil
}

func itemsFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("items"); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *undefined:
		return &iterator{}, nil
	case *dict:
		if err := in.spend(int64(len(v.keys)), partBytes+2*itemBytes); err != nil {
			return nil, err
		}
		return &iterator{v.pairs()}, nil
	}
	return nil, typeError("items of a %s", typeName(v))
}

func joinFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("join", "d?", "attribute?")
	if err != nil {
		return nil, err
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	key, err := in.getter(p[1], absent, false)
	if err != nil {
		return nil, err
	}
	sep := ""
	if p[0] != absent {
		sep = in.text(p[0])
	}
	if err := in.spend(int64(len(list)), int64(len(sep))+itemBytes); err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i, item := range list {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		parts[i] = in.text(k)
		if err := in.read(parts[i]); err != nil {
			return nil, err
		}
	}
	return strings.Join(parts, sep), nil
}

// mapFilter returns an attribute of each item, or the result of a filter for
// each.
func mapFilter(in *interpreter, v any, args *arguments) (any, error) {
	if !truth(v) {
		return &iterator{}, nil
	}
	list, err := in.items(v)
	if err != nil {
		return nil, err
	}
	var f func(any) (any, error)
	if len(args.pos) == 0 {
		p, err := args.bind("map", "attribute", "default?")
		if err != nil {
			return nil, err
		}
		if f, err = in.getter(p[0], p[1], false); err != nil {
			return nil, err
		}
	} else {
		name := in.text(args.pos[0])
		call := filters[name]
		if call == nil {
			return nil, typeError("map: unknown filter %q; known are %s", name, known(filters))
		}
		f = func(item any) (any, error) {
			return call(in, item, &arguments{pos: args.pos[1:], named: slices.Clone(args.named)})
		}
	}
	if err := in.spend(int64(len(list)), itemBytes); err != nil {
		return nil, err
	}
	out := make([]any, len(list))
	for i, item := range list {
		if err := in.step(); err != nil {
			return nil, err
		}
		if out[i], err = f(item); err != nil {
			return nil, err
		}
	}
	return &iterator{out}, nil
}

// selectFilter returns a filter that keeps the items for which a test, of the item or of an
// attribute, returns keep.
func selectFilter(byAttribute, keep bool) filter {
	return func(in *interpreter, v any, args *arguments) (any, error) {
		if !truth(v) {
			return &iterator{}, nil
		}
		list, err := in.items(v)
		if err != nil {
			return nil, err
		}
		rest := args.pos
		key := func(v any) (any, error) { return v, nil }
		if byAttribute {
			if len(rest) == 0 {
				return nil, typeError("selectattr without the name of an attribute")
			}
			if key, err = in.getter(rest[0], absent, false); err != nil {
				return nil, err
			}
			rest = rest[1:]
		}
		check := func(v any) (bool, error) { return truth(v), nil }
		if len(rest) > 0 {
			name := in.text(rest[0])
			call := tests[name]
			if call == nil {
				return nil, typeError("select: unknown test %q; known are %s", name, known(tests))
			}
			check = func(v any) (bool, error) {
				return call(in, v, &arguments{pos: rest[1:], named: slices.Clone(args.named)})
			}
		}
		if err := in.spend(int64(len(list)), itemBytes); err != nil {
			return nil, err
		}
		var out []any
		for _, item := range list {
			if err := in.step(); err != nil {
				return nil, err
			}
			k, err := key(item)
			if err != nil {
				return nil, err
			}
			ok, err := check(k)
			if err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return &iterator{out}, nil
	}
}
