package service

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// A device that is lost does not come back: that ends the server, for one who starts it
// again.
func TestServeNoticesALostDevice(t *testing.T) {
	lost := make(chan error, 1)
	o := watched{lost: lost, submit: func(context.Context, batching.Request) iter.Seq2[batching.Token, error] {
		return func(yield func(batching.Token, error) bool) {
			yield(batching.Token{}, fmt.Errorf("run: %w", backend.ErrLost))
		}
	}}
	for range 2 {
		for _, err := range o.Submit(t.Context(), batching.Request{}) {
			require.ErrorIs(t, err, backend.ErrLost)
		}
	}
	require.ErrorIs(t, <-lost, backend.ErrLost)
}
