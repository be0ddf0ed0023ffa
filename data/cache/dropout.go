package cache

import "github.com/lorafuse/lorafuse/internal/philox"

// captionDraw is the operation number of caption dropout: one that no graph
// gives, and other than those of package data.
const captionDraw = 0xFFFF_FFFC

// DropCaption says whether a sample of a step is trained on with the empty
// prompt instead of its caption, which happens with probability rate. It is a
// function of its arguments, so that a resumed run drops what an unbroken one
// would have dropped; sample counts the samples of the step, over all its
// micro-batches. A rate of 0 or less, or NaN, drops none, of 1 or more all.
func DropCaption(seed uint64, step uint32, sample int, rate float64) bool {
	if rate >= 1 {
		return true
	}
	return !philox.NewMask(seed, step, captionDraw, rate).Keep(uint64(sample))
}
