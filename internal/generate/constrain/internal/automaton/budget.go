package automaton

import "errors"

// ErrTooLarge is the error for an automaton that needs more states than the budget allows.
var ErrTooLarge = errors.New("too large")

// Budget limits the memory and time of building one grammar.
type Budget struct {
	left     int // steps
	patterns int // steps of determinizing patterns
}

// NewBudget returns a budget of states. Determinizing patterns may take an eighth of it, because that work can grow
// exponentially with the length of a pattern.
func NewBudget(states int) *Budget {
	return &Budget{left: states * steps, patterns: states * steps / 8}
}

// steps is the number of steps of work that count as one state.
const steps = 256

// Spend deducts n states.
func (b *Budget) Spend(n int) error { return b.work(n * steps) }

// work deducts n steps of work.
func (b *Budget) work(n int) error {
	if b.left -= n; b.left < 0 {
		b.left = 0
		return ErrTooLarge
	}
	return nil
}

// determinize deducts n steps from the part for patterns.
func (b *Budget) determinize(n int) error {
	if b.patterns -= n; b.patterns < 0 {
		b.patterns = 0
		return ErrTooLarge
	}
	return b.work(n)
}
