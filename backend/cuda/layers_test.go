//go:build cuda && linux

package cuda_test

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

func TestRows(t *testing.T) { gputest.Rows(t, opened(t, backend.Options{})) }

func TestImages(t *testing.T) {
	gputest.Images(t, opened(t, backend.Options{Precision: backend.BF16}))
}

func TestSums(t *testing.T) { gputest.Sums(t, opened(t, backend.Options{})) }

func TestExactBits(t *testing.T) { gputest.ExactBits(t, opened(t, backend.Options{})) }
