package constrain

import (
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// Lexemes that all grammars share, together with their cached token sets.
var (
	openObject  = fixed("{", false)
	closeObject = fixed("}", false)
	openArray   = fixed("[", false)
	closeArray  = fixed("]", false)
	comma       = fixed(",", true)
	colon       = fixed(":", true)
	nullLexeme  = fixed("null", false)
	yes         = fixed("true", false)
	no          = fixed("false", false)

	anyString  = sync.OnceValue(automaton.String)
	anyNumber  = sync.OnceValue(func() *automaton.DFA { return numbers(automaton.Numbers{}) })
	anyInteger = sync.OnceValue(func() *automaton.DFA { return numbers(automaton.Numbers{Integer: true}) })
)

// fixed returns the lexeme of one text, followed by an optional space if space is set.
func fixed(text string, space bool) func() *lexeme {
	return sync.OnceValue(func() *lexeme {
		t := automaton.Text{Bytes: text}
		if space {
			t.Spaces = []int{len(text)}
		}
		dfa, err := automaton.Texts(automaton.NewBudget(len(text)+3), []automaton.Text{t})
		if err != nil {
			dfa = &automaton.DFA{} // cannot happen: the budget suffices
		}
		return &lexeme{dfa: dfa, max: -1}
	})
}

func numbers(n automaton.Numbers) *automaton.DFA {
	dfa, err := automaton.Number(automaton.NewBudget(1<<12), n)
	if err != nil {
		return &automaton.DFA{} // cannot happen: the budget suffices
	}
	return dfa
}
