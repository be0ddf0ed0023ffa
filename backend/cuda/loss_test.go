//go:build cuda && linux

package cuda_test

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

// TestHead and TestHeadRounded take the rows of a batch in several stretches, and divide
// the products of gradients into parts.
func TestHead(t *testing.T) {
	defer cuda.SmallStretches()()
	gputest.Head(t, opened(t, backend.Options{}))
}

func TestHeadRounded(t *testing.T) {
	defer cuda.SmallStretches()()
	gputest.HeadRounded(t, opened(t, backend.Options{Precision: backend.BF16}))
}
