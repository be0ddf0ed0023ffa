package generate

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// tokenMask masks the logits of tokens that cannot follow.
type tokenMask struct {
	grammar *constrain.Matcher // nil: all tokens
	eos     []int32            // the tokens that end the answer
	mask    []uint64
	logits  []float32
}

// apply returns logits with -Inf for tokens that cannot follow. If ends is false, tokens that end
// the answer are masked, unless the grammar allows nothing else. If ends is true, they are
// allowed if the text is complete. It returns ErrOption if only they could follow an
// incomplete text.
func (a *tokenMask) apply(logits []float32, ends bool) ([]float32, error) {
	if !a.masks(ends) {
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
		// Keep values that no sampler can use, so that the sampler reports them.
		if a.mask[i>>6]>>(i&63)&1 == 0 && x <= math.MaxFloat32 {
			x = none
		}
		a.logits[i] = x
	}
	return a.logits, nil
}

// masks reports whether apply masks logits.
func (a *tokenMask) masks(ends bool) bool { return a.grammar != nil || !ends && len(a.eos) > 0 }

// setEOS allows or masks the tokens that end the answer.
func (a *tokenMask) setEOS(can bool) {
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

// accept advances the grammar past a token.
func (a *tokenMask) accept(id int32) error {
	if a.grammar == nil || slices.Contains(a.eos, id) {
		return nil
	}
	return a.grammar.Accept(id)
}

// ended reports whether nothing can follow.
func (a *tokenMask) ended() bool { return a.grammar != nil && a.grammar.Ended() }
