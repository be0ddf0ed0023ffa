package philox

import "math"

// Mask is a dropout mask as a function of the element index. Backward can
// evaluate it again, so that it need not be stored.
type Mask struct {
	Stream
	// Threshold is the number of words, of 2^32, that drop their element.
	Threshold uint32
}

// NewMask is the mask of one dropout operation in one step, which drops an
// element with probability p.
func NewMask(seed uint64, step, op uint32, p float64) Mask {
	return Mask{Stream: NewStream(seed, step, op), Threshold: Threshold(p)}
}

// Threshold is round(p·2^32), held within [0, 2^32-1]. p = 1 therefore keeps
// one element in 2^32; a caller that must drop all of them treats it apart.
func Threshold(p float64) uint32 {
	t := math.RoundToEven(p * (1 << 32))
	switch {
	case !(t > 0): // NaN too
		return 0
	case t >= math.MaxUint32:
		return math.MaxUint32
	}
	return uint32(t)
}

// Keep reports whether element i survives: whether its word is at least the
// threshold.
func (m Mask) Keep(i uint64) bool {
	return m.Word(i) >= m.Threshold
}
