// Package philox is the project's only source of random numbers: a pure
// function from (key, counter) to words, without state. Dropout masks, initial
// weights and shuffles can therefore be recomputed anywhere and in any order,
// and a resumed run draws the same numbers as an uninterrupted one.
//
// The function is Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3" (SC 2011). It passes BigCrush and costs
// twenty multiplications per four words, on a GPU as on a CPU.
package philox

import "math/bits"

// Multipliers and Weyl increments of the paper. Other implementations
// (assembly, CUDA, Metal) must use the same.
const (
	Mul0  = 0xD2511F53
	Mul1  = 0xCD9E8D57
	Weyl0 = 0x9E3779B9 // golden ratio
	Weyl1 = 0xBB67AE85 // sqrt(3)-1

	// Rounds is the number of rounds of the "-10" variant.
	Rounds = 10
)

// Key selects a function from 2^64 independent ones.
type Key [2]uint32

// Counter is the argument of the function.
type Counter [4]uint32

// NewKey returns a key with the bits of a seed, low word first.
func NewKey(seed uint64) Key {
	return Key{uint32(seed), uint32(seed >> 32)}
}

// Block computes Philox4x32-10: four random words for one counter.
func (k Key) Block(c Counter) [4]uint32 {
	c0, c1, c2, c3 := c[0], c[1], c[2], c[3]
	k0, k1 := k[0], k[1]
	for range Rounds {
		hi0, lo0 := bits.Mul32(Mul0, c0)
		hi1, lo1 := bits.Mul32(Mul1, c2)
		c0, c1, c2, c3 = hi1^c1^k0, lo1, hi0^c3^k1, lo0
		k0 += Weyl0
		k1 += Weyl1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// Uniform maps a word to [0, 1). It uses the upper 24 bits, so every value is a
// multiple of 2^-24 and exact in float32.
func Uniform(word uint32) float32 {
	return float32(word>>8) * (1.0 / (1 << 24))
}

// Uniform64 maps two words to [0, 1) with 53 bits.
func Uniform64(lo, hi uint32) float64 {
	return float64((uint64(hi)<<32|uint64(lo))>>11) * (1.0 / (1 << 53))
}
