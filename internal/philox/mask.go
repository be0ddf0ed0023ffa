package philox

import "math"

// Mask is a dropout mask, computed from the element index. The backward pass
// can compute it again, so it need not be stored.
type Mask struct {
	Stream
	// Threshold is the number of the 2^32 words for which an element is
	// dropped.
	Threshold uint32
}

// NewMask returns the mask of one dropout operation in one step, which drops an
// element with probability p.
func NewMask(seed uint64, step, op uint32, p float64) Mask {
	return Mask{Stream: NewStream(seed, step, op), Threshold: Threshold(p)}
}

// Threshold returns round(p·2^32), clamped to [0, 2^32-1]. So p = 1 keeps one
// element in 2^32; callers that must drop all elements handle it separately.
func Threshold(p float64) uint32 {
	t := math.RoundToEven(p * (1 << 32))
	switch {
	case !(t > 0): // also for NaN
		return 0
	case t >= math.MaxUint32:
		return math.MaxUint32
	}
	return uint32(t)
}

// Keep reports whether element i is kept, that is, its word is at least the
// threshold.
func (m Mask) Keep(i uint64) bool {
	return m.Word(i) >= m.Threshold
}
