package constrain

import (
	"slices"

	"github.com/lorafuse/lorafuse/generate/constrain/internal/automaton"
)

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
		w = v.within(p)
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

// within takes of the paths from a place those that its counts allow.
func (v *Vocabulary) within(p place) *walk {
	all := v.pathsFrom(p.dfa, p.at)
	w := &walk{}
	tokens := make([]int32, 0, len(all.tokens))
	for _, x := range all.tokens {
		if x.fits(p) {
			tokens = append(tokens, x.id)
		}
	}
	for _, x := range all.exits {
		if x.fits(p) {
			w.exits = append(w.exits, x.id)
		}
	}
	if len(tokens) < v.Size()/64 {
		w.tokens = slices.Clone(tokens)
		return w
	}
	w.bits = make([]uint64, words(v.Size()))
	set(w.bits, tokens)
	return w
}

// paths are all tokens that stay within a lexeme, and its exits.
type paths struct{ tokens, exits []path }

// path is a token, or a node of the trie.
type path struct {
	id    int32
	chars int32 // begun on it, where they are counted
	ends  bool  // the lexeme ends with it
}

func (x path) fits(p place) bool {
	return p.dfa.Loop == automaton.Dead || x.chars <= p.room && (!x.ends || x.chars >= p.need)
}

// pathsFrom explores a lexeme once where there are several counts to be asked about.
func (v *Vocabulary) pathsFrom(dfa *automaton.DFA, at int32) *paths {
	if dfa.Loop == automaton.Dead {
		return v.explore(dfa, at)
	}
	key := place{dfa: dfa, at: at}
	v.mu.Lock()
	all := v.counted[key]
	v.mu.Unlock()
	if all == nil {
		all = v.explore(dfa, at)
		v.mu.Lock()
		v.counted[key] = all
		v.mu.Unlock()
	}
	return all
}

// explore follows all tokens from a state until the lexeme ends or cannot go on.
func (v *Vocabulary) explore(dfa *automaton.DFA, at int32) *paths {
	type step struct{ at, chars int32 }
	stack := make([]step, v.longest+1)
	stack[0].at = at
	all := &paths{}
	for i := int32(1); i < int32(len(v.nodes)); {
		n := &v.nodes[i]
		from := stack[n.depth-1]
		to := step{dfa.Next(from.at, n.b), from.chars}
		if to.at == automaton.Dead {
			i = n.end
			continue
		}
		if completes(dfa, from.at, to.at) {
			to.chars++
		}
		x := path{chars: to.chars, ends: dfa.Final(to.at)}
		if dfa.Loop != automaton.Dead && to.at != dfa.Loop && !x.ends && to.at != 0 {
			x.chars++ // the one that it is in
		}
		for id := n.token; id != none; id = v.alike[id] {
			x.id = id
			all.tokens = append(all.tokens, x)
		}
		if x.ends && n.end > i+1 {
			x.id = i
			all.exits = append(all.exits, x)
		}
		if dfa.Ends(to.at) {
			i = n.end
			continue
		}
		stack[n.depth] = to
		i++
	}
	return all
}

// completes reports whether a step of an automaton ends a character that is counted.
func completes(dfa *automaton.DFA, from, to int32) bool {
	return to == dfa.Loop && from != 0 && to != automaton.Dead
}

// words is the number of words that a mask of n tokens has.
func words(n int) int { return (n + 63) / 64 }
