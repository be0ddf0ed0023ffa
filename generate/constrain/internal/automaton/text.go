package automaton

// Texts matches texts, byte by byte. Texts that begin alike have their spaces alike.
func Texts(b *Budget, texts []Text) (*DFA, error) {
	root := &textNode{next: map[byte]*textNode{}}
	for _, t := range texts {
		n := root
		for i := range len(t.Bytes) {
			to := n.next[t.Bytes[i]]
			if to == nil {
				if err := b.work(steps / 4); err != nil {
					return nil, err
				}
				to = &textNode{next: map[byte]*textNode{}}
				n.next[t.Bytes[i]] = to
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
	return Build(b, at{textNode: root}, func(s at, b byte) (at, bool) {
		if b == ' ' && s.space && !s.spaced {
			return at{s.textNode, true}, true
		}
		to := s.next[b]
		return at{textNode: to}, to != nil
	}, func(s at) bool { return s.final })
}

// Text is a text to match. Spaces are the places, by rising number, before which one
// space may stand beside what Bytes has there.
type Text struct {
	Bytes  string
	Spaces []int
}

type textNode struct {
	next  map[byte]*textNode
	space bool // one may follow
	final bool
}
