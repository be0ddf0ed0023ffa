package inspect

import (
	"hash/crc32"
	"sync"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// combineCRC returns the checksum of two concatenated byte sequences from their
// checksums; n is the length of the second. A checksum is linear in the bits of
// its input, so appending n zero bytes is a multiplication by a 32×32 bit
// matrix, the product of the matrices of the powers of two in n. Source: Mark
// Adler, crc32_combine of zlib.
func combineCRC(first, second uint32, n int64) uint32 {
	if first == 0 {
		return second
	}
	powers := zeroBytes()
	for i := 0; n != 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			first = powers[i].times(first)
		}
	}
	return first ^ second
}

// bits is a matrix: column i is the image of bit i of the vector.
type bits [32]uint32

func (m *bits) times(v uint32) (sum uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			sum ^= m[i]
		}
	}
	return sum
}

// zeroBytes returns the matrices for 2^i zero bytes.
var zeroBytes = sync.OnceValue(func() *[63]bits {
	var one bits // one zero bit
	one[0] = crc32.Castagnoli
	for i := 1; i < 32; i++ {
		one[i] = 1 << (i - 1)
	}
	square := func(m bits) (s bits) {
		for i := range s {
			s[i] = m.times(m[i])
		}
		return s
	}
	var powers [63]bits
	powers[0] = square(square(square(one))) // 8 bits
	for i := 1; i < len(powers); i++ {
		powers[i] = square(powers[i-1])
	}
	return &powers
})
