//go:build cuda && linux

package cuda_test

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

func TestAdamWTogether(t *testing.T) {
	gputest.AdamWTogether(t, opened(t, backend.Options{}), 1)
}

func TestAdamWInOrder(t *testing.T) { gputest.AdamWInOrder(t, opened(t, backend.Options{})) }

func TestAdamW8Together(t *testing.T) {
	gputest.AdamW8Together(t, opened(t, backend.Options{}), 1)
}
