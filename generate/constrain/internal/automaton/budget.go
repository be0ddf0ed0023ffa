package automaton

import "errors"

// ErrTooLarge is the error for what would need more states than the budget allows.
var ErrTooLarge = errors.New("too large")

// A Budget bounds the memory and the time of building one grammar.
type Budget struct {
	left     int // steps
	patterns int // steps of making patterns deterministic
}

// NewBudget returns a budget of states. Making patterns deterministic may take an eighth
// of it: that is the work that grows exponentially with a short pattern.
func NewBudget(states int) *Budget {
	return &Budget{left: states * steps, patterns: states * steps / 8}
}

// steps is the number of steps of the work on a state that count as one state.
const steps = 256

// Spend takes n states.
func (b *Budget) Spend(n int) error { return b.work(n * steps) }

// work takes n steps of work.
func (b *Budget) work(n int) error {
	if b.left -= n; b.left < 0 {
		b.left = 0
		return ErrTooLarge
	}
	return nil
}

// determinize takes n steps of the part for patterns.
func (b *Budget) determinize(n int) error {
	if b.patterns -= n; b.patterns < 0 {
		b.patterns = 0
		return ErrTooLarge
	}
	return b.work(n)
}
