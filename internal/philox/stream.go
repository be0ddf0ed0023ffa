package philox

import "math"

// Stream is a random sequence with random access, one for each (seed, step,
// op). Element i is word i%4 of the block with the counter (i/4 low, i/4 high,
// Op, Step). The GPU kernels use the same layout.
type Stream struct {
	Key  Key
	Op   uint32 // number of the drawing operation, assigned by the graph
	Step uint32 // the optimizer step, or the epoch
}

// NewStream returns the stream of one operation in one step.
func NewStream(seed uint64, step, op uint32) Stream {
	return Stream{Key: NewKey(seed), Op: op, Step: step}
}

// Block returns the four words of elements 4b to 4b+3.
func (s Stream) Block(b uint64) [4]uint32 {
	return s.Key.Block(Counter{uint32(b), uint32(b >> 32), s.Op, s.Step})
}

// Word returns element i of the stream.
func (s Stream) Word(i uint64) uint32 {
	w := s.Block(i / 4)
	return w[i%4]
}

// Uniform returns element i of the stream as a number in [0, 1).
func (s Stream) Uniform(i uint64) float32 {
	return Uniform(s.Word(i))
}

// Normal returns number i of a sequence of independent standard normal
// variables. It applies Box–Muller in float64 to block i/2: the cosine branch
// for even i, the sine branch for odd i.
func (s Stream) Normal(i uint64) float64 {
	w := s.Block(i / 2)
	// 1-u is in (0, 1], so the logarithm is finite.
	r := math.Sqrt(-2 * math.Log(1-Uniform64(w[0], w[1])))
	sin, cos := math.Sincos(2 * math.Pi * Uniform64(w[2], w[3]))
	if i%2 == 0 {
		return r * cos
	}
	return r * sin
}

// Fill sets dst to elements start, start+1, … of the stream.
func (s Stream) Fill(dst []uint32, start uint64) {
	for len(dst) > 0 && start%4 != 0 {
		dst[0] = s.Word(start)
		dst, start = dst[1:], start+1
	}
	b := start / 4
	for ; len(dst) >= 4; dst = dst[4:] {
		w := s.Block(b)
		copy(dst, w[:])
		b++
	}
	if len(dst) > 0 {
		w := s.Block(b)
		copy(dst, w[:])
	}
}
