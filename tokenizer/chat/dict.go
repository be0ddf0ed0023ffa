package chat

import (
	"maps"
	"slices"
)

// dict is a Python dictionary: it keeps the order in which its keys came.
type dict struct {
	keys   []any
	values []any
	index  map[any]int
}

func newDict() *dict { return &dict{index: map[any]int{}} }

// hashable gives what a key is found by: numbers of one value are one key. Lists and
// dictionaries cannot be keys.
func hashable(in *meter, key any) (any, bool) {
	type tupleKey string
	switch key := key.(type) {
	case nil, string, *undefined, *function, *macro:
		return key, true
	case tuple:
		if in.enter() != nil {
			return nil, false
		}
		defer in.leave()
		for _, v := range key {
			if _, ok := hashable(in, v); !ok {
				return nil, false
			}
		}
		return tupleKey(in.repr(key)), true
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

// find gives the value of a key.
func (d *dict) find(in *meter, key any) (any, bool) {
	h, ok := hashable(in, key)
	if !ok {
		return nil, false
	}
	i, ok := d.index[h]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// get is find for a key that is a string.
func (d *dict) get(key string) (any, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// set is for building a dictionary only.
func (d *dict) set(in *meter, key, value any) error {
	h, ok := hashable(in, key)
	if !ok {
		return typeError("%s cannot be the key of a dict", typeName(key))
	}
	d.place(h, key, value)
	return nil
}

// put is set for a key that is a string.
func (d *dict) put(key string, value any) { d.place(key, key, value) }

func (d *dict) place(hash, key, value any) {
	if i, ok := d.index[hash]; ok {
		d.values[i] = value
		return
	}
	d.index[hash] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, value)
}

func (d *dict) clone() *dict {
	return &dict{slices.Clone(d.keys), slices.Clone(d.values), maps.Clone(d.index)}
}

func (d *dict) pairs() []any {
	pairs := make([]any, len(d.keys))
	for i, key := range d.keys {
		pairs[i] = tuple{key, d.values[i]}
	}
	return pairs
}
