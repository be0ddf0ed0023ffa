package generate

import (
	"math"

	"github.com/lorafuse/lorafuse/generate/constrain"
)

// allowed leaves of the logits those of the tokens that a grammar lets follow.
type allowed struct {
	grammar *constrain.Matcher // nil: all
	mask    []uint64
	logits  []float32
}

// of is logits with -Inf for what cannot follow. The tokens of eos can where the text
// is complete.
func (a *allowed) of(logits []float32, eos []int32) []float32 {
	if a.grammar == nil {
		return logits
	}
	if a.mask == nil {
		a.mask = make([]uint64, (len(logits)+63)/64)
		a.logits = make([]float32, len(logits))
	}
	a.grammar.Mask(a.mask)
	for _, id := range eos {
		if id < 0 || int(id) >= len(logits) {
			continue
		}
		if bit := uint64(1) << (id & 63); a.grammar.Done() {
			a.mask[id>>6] |= bit
		} else {
			a.mask[id>>6] &^= bit
		}
	}
	none := float32(math.Inf(-1))
	for i, x := range logits {
		// What no sampler can use stays, to be found.
		if a.mask[i>>6]>>(i&63)&1 == 0 && x <= math.MaxFloat32 {
			x = none
		}
		a.logits[i] = x
	}
	return a.logits
}

// accept goes on behind a token.
func (a *allowed) accept(id int32) error {
	if a.grammar == nil {
		return nil
	}
	return a.grammar.Accept(id)
}

// ended reports whether nothing can follow.
func (a *allowed) ended() bool { return a.grammar != nil && a.grammar.Ended() }
