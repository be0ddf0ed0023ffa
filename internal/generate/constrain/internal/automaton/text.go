package automaton

import "bytes"

// Texts returns an automaton that matches the given texts. Texts with a common prefix must have the same spaces in it.
func Texts(b *Budget, texts []Text) (*DFA, error) {
	root := &textNode{}
	for _, t := range texts {
		n := root
		for i := range len(t.Bytes) {
			to := n.child(t.Bytes[i])
			if to == nil {
				if err := b.work(steps / 4); err != nil {
					return nil, err
				}
				to = &textNode{}
				n.bytes, n.next = append(n.bytes, t.Bytes[i]), append(n.next, to)
			}
			n = to
			if len(t.Spaces) > 0 && t.Spaces[0] == i+1 {
				n.space = true
				t.Spaces = t.Spaces[1:]
			}
		}
		n.final = true
	}
	type at struct {
		*textNode
		spaced bool
	}
	return Build(b, 1, at{textNode: root}, func(s at, b byte) (at, bool) {
		if b == ' ' && s.space && !s.spaced {
			return at{s.textNode, true}, true
		}
		to := s.child(b)
		return at{textNode: to}, to != nil
	}, func(s at) bool { return s.final })
}

// Text is a text to match. Spaces are the positions in Bytes, in ascending order, before which one optional space is
// allowed.
type Text struct {
	Bytes  string
	Spaces []int
}

type textNode struct {
	bytes []byte // bytes of the children
	next  []*textNode
	space bool // an optional space is allowed
	final bool
}

func (n *textNode) child(b byte) *textNode {
	if i := bytes.IndexByte(n.bytes, b); i >= 0 {
		return n.next[i]
	}
	return nil
}
