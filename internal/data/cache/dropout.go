package cache

import "github.com/lorafuse/lorafuse/internal/philox"

// captionDraw is the operation number of caption dropout, distinct from all operations of graphs and of package data.
const captionDraw = 0xFFFF_FFFC

// DropCaption reports whether a sample is trained with the empty prompt instead of its caption, which has probability
// rate. The result depends only on the arguments, so that a resumed run drops the same captions. sample numbers the
// samples of a step across all its micro-batches. A rate ≤ 0 or NaN drops none; a rate ≥ 1 drops all.
func DropCaption(seed uint64, step uint32, sample int, rate float64) bool {
	if rate >= 1 {
		return true
	}
	return !philox.NewMask(seed, step, captionDraw, rate).Keep(uint64(sample))
}
