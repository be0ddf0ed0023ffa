package generate

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/generate/constrain"
)

// allowed leaves of the logits those of the tokens that can follow.
type allowed struct {
	grammar *constrain.Matcher // nil: all tokens
	eos     []int32            // the tokens that end the answer
	mask    []uint64
	logits  []float32
}

// of is logits with -Inf for what cannot follow. Without ends, the tokens that end the
// answer cannot, unless the grammar lets nothing else follow; with it they can, where
// the text is complete. ErrOption: the grammar cannot go on without them.
func (a *allowed) of(logits []float32, ends bool) ([]float32, error) {
	if a.grammar == nil && (ends || len(a.eos) == 0) {
		return logits, nil
	}
	if a.mask == nil {
		a.mask = make([]uint64, (len(logits)+63)/64)
		a.logits = make([]float32, len(logits))
	}
	done := false
	if a.grammar == nil {
		for i := range a.mask {
			a.mask[i] = math.MaxUint64
		}
	} else {
		a.grammar.Mask(a.mask)
		done = a.grammar.Done()
	}
	a.setEOS(done && ends)
	if slices.Max(a.mask) == 0 {
		if !done {
			return nil, fmt.Errorf("%w: the grammar lets nothing follow but tokens that end the answer, and the text is not complete", ErrOption)
		}
		a.setEOS(true)
	}
	none := float32(math.Inf(-1))
	for i, x := range logits {
		// What no sampler can use stays, to be found.
		if a.mask[i>>6]>>(i&63)&1 == 0 && x <= math.MaxFloat32 {
			x = none
		}
		a.logits[i] = x
	}
	return a.logits, nil
}

// setEOS lets the tokens that end the answer follow, or not.
func (a *allowed) setEOS(can bool) {
	for _, id := range a.eos {
		if id < 0 || int(id) >= len(a.logits) {
			continue
		}
		if bit := uint64(1) << (id & 63); can {
			a.mask[id>>6] |= bit
		} else {
			a.mask[id>>6] &^= bit
		}
	}
}

// accept goes on behind a token.
func (a *allowed) accept(id int32) error {
	if a.grammar == nil || slices.Contains(a.eos, id) {
		return nil
	}
	return a.grammar.Accept(id)
}

// ended reports whether nothing can follow.
func (a *allowed) ended() bool { return a.grammar != nil && a.grammar.Ended() }
