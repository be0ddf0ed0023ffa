package philox

import "math/bits"

// Permutation is a pseudo-random permutation of [0, n) that is never stored:
// At computes any element of it. A shuffled pass over a data set is therefore
// described by a seed, an epoch and an integer cursor, all of which fit in a
// checkpoint.
//
// It is an alternating Feistel network over the smallest power of two that
// holds n, with Philox as its round function; what falls outside [0, n) is
// sent through again ("cycle walking", Black and Rogaway, CT-RSA 2002).
// The zero value permutes nothing.
type Permutation struct {
	n            uint64
	key          Key
	epoch        uint32
	low          uint // bits of the lower half
	maskL, maskH uint64
}

// feistelRounds is above the seven to which the proofs of Feistel networks
// converge; domains of a few bits need the surplus to look uniform.
const feistelRounds = 10

// permutationTag separates these draws from those of a Stream with the same
// key: no operation has this number.
const permutationTag = 0xFFFF_FFFF

// NewPermutation is the order of n things in one epoch of a run.
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

// Len is the number of things permuted.
func (p Permutation) Len() uint64 { return p.n }

// At is the thing at place i. Every i in [0, Len()) gives another one, and
// i outside of that range is returned as it is.
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

// encrypt permutes [0, 2^width). Each round changes one half by a function of
// the other, which is undone by the same round: a bijection whatever the
// function.
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
