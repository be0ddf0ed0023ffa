package torchfile

import (
	"math/big"
	"strconv"
	"unicode/utf8"
)

// BareName is the name of a tensor that was saved alone, in no dict or list.
const BareName = "tensor"

// named is a tensor, or another value, under the path of keys that leads to it.
type named struct {
	name  string
	value any
}

// flatten finds the values that are wanted in lists and dicts. The name of one
// are the keys and indices that lead to it, joined by dots. Two of the same name
// are an error, as are keys that are neither text nor integers, unless what lies
// below them may be left out.
//
// A pickle of a few bytes can describe lists within lists that have more items
// than there are atoms; thus the names are counted before they are made.
func flatten(root any, wanted func(any) bool, leaveOut bool) ([]named, error) {
	if wanted(root) {
		return []named{{BareName, root}}, nil
	}
	c, ok := root.(*container)
	if !ok {
		return nil, nil
	}
	f := flattener{wanted: wanted, leaveOut: leaveOut, surveys: map[*container]*survey{}}
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
	wanted   func(any) bool
	leaveOut bool
	surveys  map[*container]*survey
	found    []named
}

// survey is what is known of a container.
type survey struct {
	open   bool   // its items are being looked at
	live   []edge // items with something wanted in them
	leaves int64  // number of wanted values below, maxNamed+1 at most
	bytes  int64  // length of their names from here on, maxNames+1 at most
}

// edge leads to an item.
type edge struct {
	key  string
	item any
}

// survey looks at each container once, however often it occurs.
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
			if f.wanted(v) {
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

// key is the text of the key or index of an item.
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

// checkKeys refuses a dict that sets a key twice: in Python the first value is
// lost, and a reader that looks for the first would see another model.
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

// walk makes the names. It follows only what leads to something, so that its
// work is bounded by the length of the names.
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
