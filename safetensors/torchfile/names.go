package torchfile

import (
	"math/big"
	"strconv"
	"unicode/utf8"
)

// BareName is the name of a tensor that was saved alone, not in a dict or list.
const BareName = "tensor"

// named is a tensor, or another value, with the path of keys to it.
type named struct {
	name  string
	value any
}

// flatten returns the wanted values in nested lists and dicts. The name of a
// value consists of the keys and indices on the path to it, joined by dots.
// Duplicate names are an error. A key that is neither text nor integer is an
// error too, unless leaveOut is set, which skips the values below it.
//
// A pickle of a few bytes can describe nested lists with more items than there
// are atoms, so the names are counted before they are constructed.
func flatten(root any, wanted func(any) bool, leaveOut bool) ([]named, error) {
	if wanted(root) {
		return []named{{BareName, root}}, nil
	}
	c, ok := root.(*container)
	if !ok {
		return nil, nil
	}
	f := flattener{isWanted: wanted, leaveOut: leaveOut, surveys: map[*container]*survey{}}
	s, err := f.survey(c, 1)
	if err != nil {
		return nil, err
	}
	switch {
	case s.leaves > maxNamed:
		return nil, &FormatError{Rule: ErrLimit, Found: "more than " + strconv.Itoa(maxNamed) + " values with a name"}
	case s.bytes > maxNames:
		return nil, &FormatError{Rule: ErrLimit, Found: "names of more than " + byteCount(maxNames)}
	}
	f.found = make([]named, 0, s.leaves)
	f.walk(c, nil)
	names := make(map[string]struct{}, len(f.found))
	for _, n := range f.found {
		if _, twice := names[n.name]; twice {
			return nil, ofTensor(n.name, ErrName, "it twice", "keys that differ when they are joined by dots")
		}
		names[n.name] = struct{}{}
		if !utf8.ValidString(n.name) {
			return nil, ofTensor(n.name, ErrName, "text that is not valid Unicode", "")
		}
	}
	return f.found, nil
}

type flattener struct {
	isWanted func(any) bool
	leaveOut bool
	surveys  map[*container]*survey
	found    []named
}

// survey summarizes a container.
type survey struct {
	open   bool   // its items are being visited
	live   []edge // items that contain wanted values
	leaves int64  // number of wanted values in it, maxNamed+1 at most
	bytes  int64  // total length of their names relative to it, maxNames+1 at most
}

// edge is the path to an item.
type edge struct {
	key  string
	item any
}

// survey visits each container once, however often it occurs.
func (f *flattener) survey(c *container, depth int) (*survey, error) {
	if s := f.surveys[c]; s != nil {
		if s.open {
			return nil, &FormatError{Rule: ErrPickle, Found: kindOf(c) + " that contains itself"}
		}
		return s, nil
	}
	if depth > maxDepth {
		return nil, &FormatError{Rule: ErrLimit, Found: "containers nested more than " + strconv.Itoa(maxDepth) + " deep"}
	}
	s := &survey{open: true}
	f.surveys[c] = s
	for i, item := range c.items {
		below := survey{}
		switch v := item.(type) {
		case *container:
			found, err := f.survey(v, depth+1)
			if err != nil {
				return nil, err
			}
			below = *found
		default:
			if f.isWanted(v) {
				below.leaves = 1
			}
		}
		if below.leaves == 0 {
			continue
		}
		key, ok := c.key(i)
		if !ok {
			if f.leaveOut {
				continue
			}
			return nil, &FormatError{Rule: ErrName, Found: kindOf(c.keys[i]) + " as a key", Expected: "text or an integer"}
		}
		s.live = append(s.live, edge{key, item})
		s.leaves = min(s.leaves+below.leaves, maxNamed+1)
		s.bytes = min(s.bytes+below.bytes+below.leaves*int64(1+len(key)), maxNames+1)
	}
	s.open = false
	if len(s.live) == 0 {
		return s, nil
	}
	return s, c.checkKeys()
}

// key returns the key or index of an item as text.
func (c *container) key(i int) (string, bool) {
	if c.kind != kindDict {
		return strconv.Itoa(i), true
	}
	switch k := c.keys[i].(type) {
	case string:
		return k, true
	case int64:
		return strconv.FormatInt(k, 10), true
	case *big.Int:
		return k.String(), true
	case bool:
		if k {
			return "True", true
		}
		return "False", true
	}
	return "", false
}

// checkKeys rejects a dict that sets a key twice: Python keeps the last value,
// and a reader that keeps the first would see another model.
func (c *container) checkKeys() error {
	if c.kind != kindDict {
		return nil
	}
	seen := make(map[string]struct{}, len(c.keys))
	for i := range c.keys {
		key, ok := c.key(i)
		if !ok {
			continue
		}
		if _, twice := seen[key]; twice {
			return &FormatError{Rule: ErrName, Found: "the key " + quote(key) + " twice in one dict"}
		}
		seen[key] = struct{}{}
	}
	return nil
}

// walk constructs the names. It visits only containers with wanted values, so
// its work is bounded by the length of the names.
func (f *flattener) walk(c *container, prefix []byte) {
	for _, e := range f.surveys[c].live {
		path := append(prefix, e.key...)
		if below, ok := e.item.(*container); ok {
			f.walk(below, append(path, '.'))
			continue
		}
		f.found = append(f.found, named{string(path), e.item})
	}
}

// isTensor reports whether a value has elements.
func isTensor(v any) bool {
	switch v.(type) {
	case *tensor, *storage:
		return true
	}
	return false
}
