package dit

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// sees reports whether a text token exists and is not masked out.
func (p Prompt) sees(token int) bool {
	return token < p.tokens() && (p.Mask == nil || p.Mask[token])
}

// seen returns the number of text tokens that are not masked out.
func (p Prompt) seen() (n int) {
	for t := range p.tokens() {
		if p.sees(t) {
			n++
		}
	}
	return n
}

// Inputs of transformers whose text and image tokens do not always attend to each other, i32:
// the bounds of the keys of the tokens of a kind.
const (
	imageLo = "image lo"
	imageHi = "image hi"
	textLo  = "text lo"
	textHi  = "text hi"
)

// intervals holds the bounds of the keys of each token, sample by sample.
type intervals struct{ lo, hi []int32 }

// add adds a sample with the given number of tokens. The first seen of them attend to each
// other.
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

// attends returns the attributes of an attention with separate keys per head.
func attends(heads, size int) ir.AttentionAttr {
	return ir.AttentionAttr{Heads: heads, KVHeads: heads, HeadDim: size, Scale: float32(1 / math.Sqrt(float64(size)))}
}
