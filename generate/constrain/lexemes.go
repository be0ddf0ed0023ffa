package constrain

import (
	"sync"

	"github.com/lorafuse/lorafuse/generate/constrain/internal/automaton"
)

// Lexemes that all grammars share, and with them what is remembered of a vocabulary.
var (
	openObject  = fixed("{", false)
	closeObject = fixed("}", false)
	openArray   = fixed("[", false)
	closeArray  = fixed("]", false)
	comma       = fixed(",", true)
	colon       = fixed(":", true)
	nothing     = fixed("null", false)
	yes         = fixed("true", false)
	no          = fixed("false", false)

	anyString  = sync.OnceValue(automaton.String)
	anyNumber  = sync.OnceValue(func() *automaton.DFA { return numbers(automaton.Numbers{}) })
	anyInteger = sync.OnceValue(func() *automaton.DFA { return numbers(automaton.Numbers{Integer: true}) })
)

// fixed is a lexeme of one text, which one space may follow.
func fixed(text string, space bool) func() *lexeme {
	return sync.OnceValue(func() *lexeme {
		t := automaton.Text{Bytes: text}
		if space {
			t.Spaces = []int{len(text)}
		}
		dfa, err := automaton.Texts(automaton.NewBudget(len(text)+3), []automaton.Text{t})
		if err != nil {
			dfa = &automaton.DFA{} // the budget is made for it
		}
		return &lexeme{dfa: dfa, max: -1}
	})
}

func numbers(n automaton.Numbers) *automaton.DFA {
	dfa, err := automaton.Number(automaton.NewBudget(1<<12), n)
	if err != nil {
		return &automaton.DFA{} // the budget is made for it
	}
	return dfa
}
