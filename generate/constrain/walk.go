package constrain

import "github.com/lorafuse/lorafuse/generate/constrain/internal/automaton"

// place is where a text is within a lexeme, as far as the next token depends on it.
type place struct {
	dfa *automaton.DFA
	at  int32
	// The characters that must follow before the end, and that may; both up to the
	// longest token, beyond which more make no difference.
	need, room int32
}

// walk is what the trie of a vocabulary gives from a place: the tokens that stay within
// the lexeme, and the nodes of the trie at which it may end while tokens go on.
type walk struct {
	tokens []int32  // where they are few
	bits   []uint64 // where they are many
	exits  []int32
}

// maxWalks bounds half of what is remembered.
const maxWalks = 512

// walk gives that of a place, which is worked out once as long as it is remembered:
// what is asked for again stays, what is not goes.
func (v *Vocabulary) walk(p place) *walk {
	v.mu.Lock()
	w := v.fresh[p]
	if w == nil {
		w = v.stale[p]
	}
	v.mu.Unlock()
	if w == nil {
		w = v.explore(p)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fresh[p] == nil {
		if len(v.fresh) >= maxWalks {
			v.fresh, v.stale = make(map[place]*walk, maxWalks), v.fresh
		}
		v.fresh[p] = w
	}
	return w
}

// explore follows all tokens from a place until the lexeme ends or cannot go on.
func (v *Vocabulary) explore(p place) *walk {
	w := &walk{}
	counts := p.dfa.Loop != automaton.Dead
	type step struct{ at, need, room int32 }
	stack := make([]step, v.longest+1)
	stack[0] = step{p.at, p.need, p.room}
	var tokens []int32
	for i := int32(1); i < int32(len(v.nodes)); {
		n := &v.nodes[i]
		from := stack[n.depth-1]
		to := step{p.dfa.Next(from.at, n.b), from.need, from.room}
		if counts && to.at != automaton.Dead {
			to.need, to.room = counted(p.dfa, from.at, to.at, from.need, from.room)
		}
		if to.at == automaton.Dead || to.room < 0 {
			i = n.end
			continue
		}
		if p.dfa.Final(to.at) {
			if to.need > 0 {
				i = n.end
				continue
			}
			if n.end > i+1 {
				w.exits = append(w.exits, i)
			}
		}
		for id := n.token; id != none; id = v.alike[id] {
			tokens = append(tokens, id)
		}
		if p.dfa.Ends(to.at) {
			i = n.end
			continue
		}
		stack[n.depth] = to
		i++
	}
	if len(tokens) < v.Size()/64 {
		w.tokens = append([]int32{}, tokens...)
		return w
	}
	w.bits = make([]uint64, words(v.Size()))
	for _, id := range tokens {
		w.bits[id>>6] |= 1 << (id & 63)
	}
	return w
}

// counted gives the characters that must and may follow after a step of a lexeme that
// counts them. Room is negative where there was none for the character that begins.
func counted(dfa *automaton.DFA, from, to, need, room int32) (int32, int32) {
	switch {
	case from == dfa.Loop && !dfa.Final(to) && room == 0:
		return need, -1
	case to == dfa.Loop && from != 0:
		return max(need-1, 0), room - 1
	}
	return need, room
}

// words is the number of words that a mask of n tokens has.
func words(n int) int { return (n + 63) / 64 }
