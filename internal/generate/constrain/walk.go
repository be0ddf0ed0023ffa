package constrain

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// place is a position in a lexeme, in as much detail as the next token depends on.
type place struct {
	dfa *automaton.DFA
	at  int32
	// need and room are the minimum and maximum number of remaining characters, both capped at the length of the
	// longest token.
	need, room int32
}

// walk lists the results of following the trie from a place. These are the tokens that stay within the lexeme, and the
// nodes at which the lexeme may end inside a token.
type walk struct {
	tokens []int32  // if there are few
	bits   []uint64 // if there are many
	exits  []int32
}

// maxWalks is half of the maximum number of cached walks.
const maxWalks = 512

// walk returns the walk of a place and caches it. The cache keeps recently used walks.
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

// within selects the paths from a place that its counts allow.
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

// path is a token or a node of the trie.
type path struct {
	id    int32
	chars int32 // characters started, if they are counted
	ends  bool  // the lexeme ends with it
}

func (x path) fits(p place) bool {
	return p.dfa.Loop == automaton.Dead || x.chars <= p.room && (!x.ends || x.chars >= p.need)
}

// pathsFrom returns the paths from a state. It caches them for lexemes that count characters, because walks with
// different counts share them.
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

// explore follows all tokens from a state until the lexeme ends or cannot continue.
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
			x.chars++ // the current character
		}
		for id := n.token; id != none; id = v.sameBytes[id] {
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

// completes reports whether a transition of an automaton completes a counted character.
func completes(dfa *automaton.DFA, from, to int32) bool {
	return to == dfa.Loop && from != 0 && to != automaton.Dead
}

// words returns the number of words in a mask of n tokens.
func words(n int) int { return (n + 63) / 64 }
