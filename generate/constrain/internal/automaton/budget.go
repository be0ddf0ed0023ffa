package automaton

import "errors"

// ErrTooLarge is the error for what would need more states than the budget allows.
var ErrTooLarge = errors.New("too large")

// A Budget bounds what is built for one grammar, whatever is asked for.
type Budget struct{ left int }

// NewBudget allows so many states.
func NewBudget(states int) *Budget { return &Budget{left: states * steps} }

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
