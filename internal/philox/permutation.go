package philox

import "math/bits"

// Permutation is a pseudo-random permutation of [0, n). It needs no table: At
// computes any element. A seed, an epoch and an integer cursor, which fit in a
// checkpoint, describe a shuffled pass over a data set.
//
// It is an alternating Feistel network over the smallest power of two ≥ n, with
// Philox as its round function; results outside [0, n) are encrypted again
// ("cycle walking", Black and Rogaway, CT-RSA 2002). The zero value is the
// permutation of an empty set.
type Permutation struct {
	n            uint64
	key          Key
	epoch        uint32
	low          uint // bits of the lower half
	maskL, maskH uint64
}

// feistelRounds exceeds the seven rounds to which the proofs for Feistel
// networks converge; domains of a few bits need more to look uniform.
const feistelRounds = 10

// permutationTag separates these draws from a Stream with the same key: no
// operation has this number.
const permutationTag = 0xFFFF_FFFF

// NewPermutation returns the order of n items in one epoch of a run.
func NewPermutation(n, seed uint64, epoch uint32) Permutation {
	width := uint(0)
	if n > 1 {
		width = uint(bits.Len64(n - 1))
	}
	low := (width + 1) / 2
	return Permutation{
		n: n, key: NewKey(seed), epoch: epoch,
		low:   low,
		maskL: 1<<low - 1,
		maskH: 1<<(width-low) - 1,
	}
}

// Len returns n, the number of permuted items.
func (p Permutation) Len() uint64 { return p.n }

// At returns the item at position i, a different one for every i in [0, Len()).
// It returns i itself outside that range.
func (p Permutation) At(i uint64) uint64 {
	if i >= p.n {
		return i
	}
	for {
		i = p.encrypt(i)
		if i < p.n {
			return i
		}
	}
}

// encrypt permutes [0, 2^width). Each round combines one half with a function
// of the other half and is its own inverse, so the result is a bijection for
// any function.
func (p Permutation) encrypt(x uint64) uint64 {
	l, h := x&p.maskL, x>>p.low
	for r := uint32(0); r < feistelRounds; r += 2 {
		l ^= p.round(h, r) & p.maskL
		h ^= p.round(l, r+1) & p.maskH
	}
	return h<<p.low | l
}

// round draws 32 bits: a half has no more, since width ≤ 64.
func (p Permutation) round(half uint64, r uint32) uint64 {
	w := p.key.Block(Counter{uint32(half), r, permutationTag, p.epoch})
	return uint64(w[0])
}
