package constrain

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// ErrPattern is the error for a regular expression that is malformed or not supported.
var ErrPattern = automaton.ErrPattern

// ErrEmpty is the error for a regular expression or a choice that leaves no text but the empty one.
var ErrEmpty = errors.New("no text matches, or only the empty one")

// Regex returns the grammar of the texts that a regular expression matches from start to end. Its
// syntax is that of the keyword pattern in JSON Schema. It fails with ErrPattern, ErrTooLarge or
// ErrEmpty.
func Regex(text string) (*Grammar, error) {
	b := automaton.NewBudget(maxStates)
	chars, err := automaton.Whole(b, text)
	if err != nil {
		return nil, fmt.Errorf("constrain: %w", err)
	}
	dfa, err := automaton.Literal(b, chars)
	if err != nil {
		return nil, fmt.Errorf("constrain: %w", err)
	}
	return literal(dfa)
}

// Choice returns the grammar of the given texts. It fails with ErrTooLarge or ErrEmpty.
func Choice(texts []string) (*Grammar, error) {
	var all []automaton.Text
	for _, t := range texts {
		all = append(all, automaton.Text{Bytes: t})
	}
	dfa, err := automaton.Texts(automaton.NewBudget(maxStates), all)
	if err != nil {
		return nil, fmt.Errorf("constrain: %w", err)
	}
	return literal(dfa)
}

// literal returns the grammar of the texts of an automaton.
func literal(dfa *automaton.DFA) (*Grammar, error) {
	g := &Grammar{}
	var start, end int32
	g.root, start, end = g.newRule()
	if dfa.States() == 0 || !dfa.Moves(0) {
		return nil, fmt.Errorf("constrain: %w", ErrEmpty)
	}
	g.states[start].final = dfa.Final(0)
	g.connect(start, byLexeme(&lexeme{dfa: dfa, max: -1}, end))
	if !g.trim() {
		return nil, fmt.Errorf("constrain: %w", ErrEmpty)
	}
	return g, nil
}
