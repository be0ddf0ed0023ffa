package constrain

import (
	"sync"

	"github.com/lorafuse/lorafuse/generate/constrain/internal/automaton"
)

// Grammar is a set of JSON texts. It is immutable and safe for concurrent use; a
// [Matcher] follows one text.
type Grammar struct {
	rules   []rule
	states  []state
	root    int32 // a rule
	lexemes []*automaton.DFA
}

// rule is what one place of a text may be. From its start a final state is reached by
// one byte at least.
type rule struct{ start int32 }

type state struct {
	arcs  []arc
	final bool // of its rule
}

// arc leads to a state of the same rule: by a lexeme, by a text of another rule, or by
// nothing.
type arc struct {
	lexeme *lexeme
	rule   int32 // none
	to     int32

	// The arc is there behind least to most items of the rule's array; most is
	// negative where nothing bounds it. It adds items, which are counted up to limit.
	least, most, items, limit int32
}

// none is no rule.
const none = int32(-1)

// lexeme is what an automaton matches, with min to max characters where it counts them;
// max is negative where nothing bounds it.
type lexeme struct {
	dfa      *automaton.DFA
	min, max int32
}

// JSON is any JSON object.
func JSON() *Grammar { return anyObject() }

var anyObject = sync.OnceValue(func() *Grammar {
	g, err := Schema([]byte(`{"type":"object"}`))
	if err != nil {
		return &Grammar{} // a schema that the tests compile
	}
	return g
})

// Bytes returns about how much memory the grammar takes.
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

// newRule adds a rule and gives its start and its final state.
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

// trim leaves out what no text goes through: lexemes and rules that match nothing, and
// states from which the end of their rule is not reached. It reports whether a text is
// left. Behind it no place of a text is a dead end.
func (g *Grammar) trim() bool {
	ends := make([]bool, len(g.states)) // the end of the rule is reached
	passable := func(a arc) bool {
		switch {
		case a.lexeme != nil && a.lexeme.dfa.States() == 0:
			return false
		case a.rule != none && !ends[g.rules[a.rule].start]:
			return false
		}
		return ends[a.to]
	}
	before := make([][]int32, len(g.states)) // whose arcs wait for the state
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
