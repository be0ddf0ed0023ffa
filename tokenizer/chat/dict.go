package chat

import (
	"maps"
	"slices"
)

// dict is a Python dictionary. It keeps its keys in insertion order.
type dict struct {
	keys   []any
	values []any
	index  map[any]int
}

func newDict() *dict { return &dict{index: map[any]int{}} }

// hashable returns the map key for a dictionary key; equal numbers have the same
// one. It returns false for lists and dictionaries, which cannot be keys.
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

// find returns the value of a key.
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

// get returns the value of a string key.
func (d *dict) get(key string) (any, bool) {
	i, ok := d.index[key]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// set adds an entry; use it only while building a dictionary.
func (d *dict) set(in *meter, key, value any) error {
	h, ok := hashable(in, key)
	if !ok {
		return typeError("%s cannot be the key of a dict", typeName(key))
	}
	d.place(h, key, value)
	return nil
}

// setString adds an entry with a string key.
func (d *dict) setString(key string, value any) { d.place(key, key, value) }

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
