package batching

import (
	"math/bits"

	"github.com/lorafuse/lorafuse/internal/nn"
)

// fineRows is the number of rows above which padded sizes are closer together. GPUs multiply fewer rows in tiles of a
// power of two, or wait for the weights alone.
const fineRows = 64

// padded returns the size to which an axis of n rows is padded, at most most. It is the next power of two or, above
// fineRows rows, the next eighth of one.
func padded(n, most int) int {
	step := 1 << bits.Len(uint(n-1))
	if n > fineRows {
		step /= 8
	}
	return min((n+step-1)/step*step, most)
}

// pad pads the arrays of a step to sizes that repeat, so that the device can replay the launches of an earlier step.
// Rows that are appended change no other row: they see no keys, have no adapter and are not stored in the cache.
func (b *batch) pad(bounds map[string]int) {
	size := func(axis string, n int) int { return padded(n, bounds[axis]) }
	b.given.Pad(size(nn.Tokens, len(b.adapters)), size(nn.Pages, len(b.given.Pages())))
	for range len(b.given.Tokens()) - len(b.adapters) {
		b.adapters = append(b.adapters, -1)
	}
	for range size(readInput, len(b.reads)) - len(b.reads) {
		b.reads, b.temperatures = append(b.reads, 0), append(b.temperatures, 1)
	}
}
