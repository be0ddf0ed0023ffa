package chat

import (
	"slices"
	"strings"
)

func firstFilter(_ *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("first"); err != nil {
		return nil, err
	}
	if it, ok := v.(*iterator); ok { // takes one item only
		if len(it.items) == 0 {
			return &undefined{"the first of nothing"}, nil
		}
		item := it.items[0]
		it.items = it.items[1:]
		return item, nil
	}
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return &undefined{"the first of nothing"}, nil
	}
	return list[0], nil
}

func lastFilter(_ *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("last"); err != nil {
		return nil, err
	}
	list, err := backwards(v)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return &undefined{"the last of nothing"}, nil
	}
	return list[0], nil
}

// backwards is Python's reversed(), which generators do not allow.
func backwards(v any) ([]any, error) {
	if _, ok := v.(*iterator); ok {
		return nil, typeError("a generator has no end to begin with; make it a list first")
	}
	list, err := items(v)
	list = slices.Clone(list)
	slices.Reverse(list)
	return list, err
}

func reverseFilter(_ *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("reverse"); err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		chars := []rune(s)
		slices.Reverse(chars)
		return string(chars), nil
	}
	if it, ok := v.(*iterator); ok {
		list, _ := items(it)
		list = slices.Clone(list)
		slices.Reverse(list)
		return list, nil
	}
	list, err := backwards(v)
	return &iterator{list}, err
}

func listFilter(_ *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("list"); err != nil {
		return nil, err
	}
	list, err := items(v)
	return append([]any{}, list...), err
}

func itemsFilter(_ *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("items"); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *undefined:
		return &iterator{}, nil
	case *dict:
		return &iterator{v.pairs()}, nil
	}
	return nil, typeError("items of a %s", typeName(v))
}

func joinFilter(_ *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("join", "d?", "attribute?")
	if err != nil {
		return nil, err
	}
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	key, err := getter(p[1], absent, false)
	if err != nil {
		return nil, err
	}
	sep := ""
	if p[0] != absent {
		sep = text(p[0])
	}
	parts := make([]string, len(list))
	size := int64(0)
	for i, item := range list {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		parts[i] = text(k)
		size += int64(len(parts[i]) + len(sep))
	}
	if err := tooLarge(size); err != nil {
		return nil, err
	}
	return strings.Join(parts, sep), nil
}

// mapFilter takes an attribute of each item, or applies a filter to each.
func mapFilter(in *interpreter, v any, args *arguments) (any, error) {
	if !truth(v) {
		return &iterator{}, nil
	}
	list, err := items(v)
	if err != nil {
		return nil, err
	}
	var f func(any) (any, error)
	if len(args.pos) == 0 {
		p, err := args.bind("map", "attribute", "default?")
		if err != nil {
			return nil, err
		}
		if f, err = getter(p[0], p[1], false); err != nil {
			return nil, err
		}
	} else {
		name := text(args.pos[0])
		call := filters[name]
		if call == nil {
			return nil, typeError("map: unknown filter %q; known are %s", name, known(filters))
		}
		f = func(item any) (any, error) {
			return call(in, item, &arguments{pos: args.pos[1:], named: slices.Clone(args.named)})
		}
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

// selectFilter keeps the items for which a test, of the item or of an attribute, says keep.
func selectFilter(byAttribute, keep bool) filter {
	return func(in *interpreter, v any, args *arguments) (any, error) {
		if !truth(v) {
			return &iterator{}, nil
		}
		list, err := items(v)
		if err != nil {
			return nil, err
		}
		rest := args.pos
		key := func(v any) (any, error) { return v, nil }
		if byAttribute {
			if len(rest) == 0 {
				return nil, typeError("selectattr without the name of an attribute")
			}
			if key, err = getter(rest[0], absent, false); err != nil {
				return nil, err
			}
			rest = rest[1:]
		}
		check := func(v any) (bool, error) { return truth(v), nil }
		if len(rest) > 0 {
			name := text(rest[0])
			call := tests[name]
			if call == nil {
				return nil, typeError("select: unknown test %q; known are %s", name, known(tests))
			}
			check = func(v any) (bool, error) {
				return call(in, v, &arguments{pos: rest[1:], named: slices.Clone(args.named)})
			}
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
