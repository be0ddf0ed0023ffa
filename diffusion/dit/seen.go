package dit

import (
	"math"

	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/ir"
)

// sees tells whether a token of the text is there, and seen.
func (p Prompt) sees(token int) bool {
	return token < p.tokens() && (p.Mask == nil || p.Mask[token])
}

// seen is how many tokens of the text are seen.
func (p Prompt) seen() (n int) {
	for t := range p.tokens() {
		if p.sees(t) {
			n++
		}
	}
	return n
}

// intervals are the keys that tokens see, sample by sample.
type intervals struct{ lo, hi []int32 }

// add has the first seen of so many tokens of a sample see each other.
func (x *intervals) add(tokens, seen int) {
	first := int32(len(x.lo))
	for t := range tokens {
		hi := first
		if t < seen {
			hi += int32(seen)
		}
		x.lo, x.hi = append(x.lo, first), append(x.hi, hi)
	}
}

func (x *intervals) set(b *data.Batch, lo, hi string) {
	b.SetInts(lo, x.lo)
	b.SetInts(hi, x.hi)
}

// attends are heads of an attention, each with keys of its own.
func attends(heads, size int) ir.AttentionAttr {
	return ir.AttentionAttr{Heads: heads, KVHeads: heads, HeadDim: size, Scale: float32(1 / math.Sqrt(float64(size)))}
}
