package chat

import "strings"

// dict is a Python dictionary: it keeps the order in which its keys came.
type dict struct {
	keys   []any
	values []any
	index  map[any]int
}

func newDict() *dict { return &dict{index: map[any]int{}} }

// hashable gives what a key is found by: numbers of one value are one key. Lists and
// dictionaries cannot be keys.
func hashable(key any) (any, bool) {
	type tupleKey string
	switch key := key.(type) {
	case nil, string, *undefined, *function, *macro:
		return key, true
	case tuple:
		for _, v := range key {
			if _, ok := hashable(v); !ok {
				return nil, false
			}
		}
		return tupleKey(repr(key)), true
	}
	if i, ok := integer(key); ok {
		return i, true
	}
	if f, ok := key.(float64); ok {
		if f == float64(int64(f)) {
			return int64(f), true
		}
		return f, true
	}
	return nil, false
}

func (d *dict) get(key any) (any, bool) {
	h, ok := hashable(key)
	if !ok {
		return nil, false
	}
	i, ok := d.index[h]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// set is for building a dictionary only.
func (d *dict) set(key, value any) error {
	h, ok := hashable(key)
	if !ok {
		return typeError("%s cannot be the key of a dict", typeName(key))
	}
	if i, ok := d.index[h]; ok {
		d.values[i] = value
		return nil
	}
	d.index[h] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, value)
	return nil
}

// put sets a key that is a string.
func (d *dict) put(key string, value any) { _ = d.set(key, value) }

func (d *dict) clone() *dict {
	c := newDict()
	for i, key := range d.keys {
		_ = c.set(key, d.values[i])
	}
	return c
}

func (d *dict) pairs() []any {
	pairs := make([]any, len(d.keys))
	for i, key := range d.keys {
		pairs[i] = tuple{key, d.values[i]}
	}
	return pairs
}

func (d *dict) repr() string {
	parts := make([]string, len(d.keys))
	for i, key := range d.keys {
		parts[i] = repr(key) + ": " + repr(d.values[i])
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
