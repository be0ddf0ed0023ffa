package constrain

import (
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// Grammar is a set of JSON texts. It is immutable and safe for concurrent use; a [Matcher] follows one text.
type Grammar struct {
	rules   []rule
	states  []state
	root    int32 // the start rule
	lexemes []*automaton.DFA
}

// rule is a nonterminal. A text of the rule has at least one byte.
type rule struct{ start int32 }

type state struct {
	arcs  []arc
	final bool // final state of its rule
}

// arc leads to a state of the same rule by a lexeme, by a text of another rule, or without input.
type arc struct {
	lexeme *lexeme
	rule   int32 // none for no rule
	to     int32

	// The arc is enabled after least to most items of the rule's array; a negative most means no limit. It adds items,
	// which are counted up to limit.
	least, most, items, limit int32
}

// none means no rule.
const none = int32(-1)

// lexeme is the language of an automaton, limited to min to max characters if the automaton counts them; a negative max
// means no limit.
type lexeme struct {
	dfa      *automaton.DFA
	min, max int32
}

// JSON returns the grammar of all JSON objects.
func JSON() *Grammar { return anyObject() }

var anyObject = sync.OnceValue(func() *Grammar {
	g, err := Schema([]byte(`{"type":"object"}`))
	if err != nil {
		return &Grammar{} // cannot happen: the tests compile this schema
	}
	return g
})

// Bytes returns the approximate memory size of the grammar.
func (g *Grammar) Bytes() int {
	const perState, perArc = 32, 48
	n := perState * len(g.states)
	for _, s := range g.states {
		n += perArc * len(s.arcs)
	}
	for _, d := range g.lexemes {
		n += d.Bytes()
	}
	return n
}

func (g *Grammar) newState(final bool) int32 {
	g.states = append(g.states, state{final: final})
	return int32(len(g.states) - 1)
}

// newRule adds a rule and returns its start and final states.
func (g *Grammar) newRule() (r, start, end int32) {
	start, end = g.newState(false), g.newState(true)
	g.rules = append(g.rules, rule{start})
	return int32(len(g.rules) - 1), start, end
}

func (g *Grammar) connect(from int32, a arc) {
	g.states[from].arcs = append(g.states[from].arcs, a)
}

func byLexeme(l *lexeme, to int32) arc { return arc{lexeme: l, rule: none, to: to, most: -1} }
func byRule(r, to int32) arc           { return arc{rule: r, to: to, most: -1} }
func byNothing(to int32) arc           { return arc{rule: none, to: to, most: -1} }

// trim removes everything that no text passes through: lexemes and rules that match nothing, and states that cannot
// reach the end of their rule. It reports whether any text is left. Afterwards no prefix of a text is a dead end.
func (g *Grammar) trim() bool {
	ends := make([]bool, len(g.states)) // states that can reach the end of their rule
	passable := func(a arc) bool {
		switch {
		case a.lexeme != nil && a.lexeme.dfa.States() == 0:
			return false
		case a.rule != none && !ends[g.rules[a.rule].start]:
			return false
		}
		return ends[a.to]
	}
	before := make([][]int32, len(g.states)) // states with arcs that wait for the state
	var queue []int32
	for q, s := range g.states {
		for _, a := range s.arcs {
			before[a.to] = append(before[a.to], int32(q))
			if a.rule != none {
				start := g.rules[a.rule].start
				before[start] = append(before[start], int32(q))
			}
		}
		if s.final {
			ends[q] = true
			queue = append(queue, int32(q))
		}
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, q := range before[at] {
			if ends[q] {
				continue
			}
			for _, a := range g.states[q].arcs {
				if passable(a) {
					ends[q] = true
					queue = append(queue, q)
					break
				}
			}
		}
	}
	seen := map[*automaton.DFA]bool{}
	for q := range g.states {
		var kept []arc
		for _, a := range g.states[q].arcs {
			if !passable(a) {
				continue
			}
			kept = append(kept, a)
			if a.lexeme != nil && !seen[a.lexeme.dfa] {
				seen[a.lexeme.dfa] = true
				g.lexemes = append(g.lexemes, a.lexeme.dfa)
			}
		}
		g.states[q].arcs = kept
	}
	return ends[g.rules[g.root].start]
}
