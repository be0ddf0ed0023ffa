package vec

import "github.com/lorafuse/lorafuse/internal/philox"

// Dropout sets dst[i] = x[i]·scale if mask keeps element start+i, and 0
// otherwise; scale is 1/(1−p). The same call on the gradient is the backward
// pass.
func Dropout(dst, x []float32, mask philox.Mask, start uint64, scale float32) {
	x = x[:len(dst)]
	// The kernels process whole groups of counters with the same high word.
	for start%4 != 0 && len(dst) > 0 {
		dropEach(dst[:1], x, mask, start, scale)
		dst, x, start = dst[1:], x[1:], start+1
	}
	for len(dst) >= dropGroup {
		low := uint32(start / 4)
		// Groups left before the low word of the counter overflows.
		groups := (1<<32 - uint64(low)) * 4 / dropGroup
		n := int(min(uint64(len(dst)/dropGroup), groups))
		if n == 0 {
			dropEach(dst[:dropGroup], x, mask, start, scale)
			n = 1
		} else {
			active.dropout(dst[:n*dropGroup], x, dropBlock{
				counter:   [4]uint32{low, uint32(start >> 34), mask.Op, mask.Step},
				key:       mask.Key,
				threshold: mask.Threshold,
				scale:     scale,
			})
		}
		dst, x, start = dst[n*dropGroup:], x[n*dropGroup:], start+uint64(n*dropGroup)
	}
	dropEach(dst, x, mask, start, scale)
}

// Keeps reports whether Keep and Masked are faster than drawing the mask again
// each time it is applied.
func Keeps() bool { return active.keep != nil }

// Keep sets the bits of the elements that mask keeps and clears the others: bit
// i%8 of byte i/8 belongs to element start+i. start and the number of bits must be
// multiples of 64.
func Keep(bits []byte, mask philox.Mask, start uint64) {
	for len(bits) > 0 {
		low := start / 4
		// Groups left before the low word of the counter overflows.
		n := int(min(uint64(len(bits)/(dropGroup/8)), (1<<32-low&(1<<32-1))*4/dropGroup))
		d := dropBlock{counter: [4]uint32{uint32(low), uint32(low >> 32), mask.Op, mask.Step}, key: mask.Key, threshold: mask.Threshold}
		if active.keep != nil {
			active.keep(bits[:n*dropGroup/8], d)
		} else {
			portableKeep(bits[:n*dropGroup/8], d)
		}
		bits, start = bits[n*dropGroup/8:], start+uint64(n*dropGroup)
	}
}

// Masked computes Dropout from bits that Keep has set for the elements from 0:
// dst[i] belongs to element start+i.
func Masked(dst, x []float32, bits []byte, start int, scale float32) {
	const turn = 16 // elements processed at once by the kernels
	x = x[:len(dst)]
	if n := min(len(dst), -start&(turn-1)); n > 0 {
		portableMasked(dst[:n], x, bits, start, scale)
		dst, x, start = dst[n:], x[n:], start+n
	}
	if n := len(dst) &^ (turn - 1); n > 0 && active.masked != nil {
		active.masked(dst[:n], x, bits[start/8:], scale)
		dst, x, start = dst[n:], x[n:], start+n
	}
	portableMasked(dst, x, bits, start, scale)
}

func portableMasked(dst, x []float32, bits []byte, start int, scale float32) {
	for i := range dst {
		if at := start + i; bits[at/8]>>(at%8)&1 != 0 {
			dst[i] = x[i] * scale
		} else {
			dst[i] = 0
		}
	}
}

// portableKeep processes a multiple of 8 bytes.
func portableKeep(bits []byte, d dropBlock) {
	for c := d.counter; len(bits) > 0; bits = bits[1:] {
		bits[0] = 0
		for half := range 2 {
			for i, w := range d.key.Block(c) {
				if w >= d.threshold {
					bits[0] |= 1 << (4*half + i)
				}
			}
			c[0]++
		}
	}
}

// dropGroup is the number of elements that a step of the widest kernel draws:
// 16 counters of 4 words.
const dropGroup = 64

// dropBlock is the initial state of a kernel. The assembly depends on its
// layout.
type dropBlock struct {
	counter   philox.Counter // counter of the first element, which has word 0
	key       philox.Key
	threshold uint32
	scale     float32
}

// portableDropout processes a multiple of dropGroup elements.
func portableDropout(dst, x []float32, d dropBlock) {
	c := d.counter
	for ; len(dst) >= 4; dst, x = dst[4:], x[4:] {
		for i, w := range d.key.Block(c) {
			if w >= d.threshold {
				dst[i] = x[i] * d.scale
			} else {
				dst[i] = 0
			}
		}
		c[0]++
	}
}

func dropEach(dst, x []float32, mask philox.Mask, start uint64, scale float32) {
	var w [4]uint32
	for i := range dst {
		at := start + uint64(i)
		if i == 0 || at%4 == 0 {
			w = mask.Block(at / 4)
		}
		if w[at%4] >= mask.Threshold {
			dst[i] = x[i] * scale
		} else {
			dst[i] = 0
		}
	}
}
