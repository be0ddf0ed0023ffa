package batching

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/pages"
	"github.com/lorafuse/lorafuse/lora"
)

// request is the state of a Request in progress. Fields without a comment belong to the engine's
// goroutine.
type request struct {
	Request
	number uint64 // in order of arrival
	flow   flowKey
	root   pages.Root
	long   pages.Root  // of texts with the tables of all long texts
	lease  *lora.Lease // nil for the base model
	came   time.Time

	unread int // tokens of the prompt that are still to be read; Engine.mu guards it
	texts  int // texts that have not ended
	passed int // requests that started while this one could have
	begun  time.Time
	first  time.Time // time of the first token
	cached int
	prompt []generate.Logprobs

	gone atomic.Bool   // the reader has left
	over chan struct{} // closed when the engine is done with the request
	out  stream
}

// releaseLease releases the adapter of a request that needs it no more.
func (r *request) releaseLease() {
	if r.lease != nil {
		r.lease.Release()
		r.lease = nil
	}
}

// stream passes tokens from the engine to the reader. The engine never waits for the reader: unread
// tokens are buffered, at most all tokens of the answers.
type stream struct {
	mu     sync.Mutex
	tokens []Token
	ended  bool
	err    error
	more   chan struct{} // holds a value when there are new tokens or the end
}

func newStream() stream { return stream{more: make(chan struct{}, 1)} }

// put appends a token.
func (s *stream) put(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	s.mu.Unlock()
	wake(s.more)
}

// end ends the stream with an error, nil at the regular end. Only the first call has an effect.
func (s *stream) end(err error) {
	s.mu.Lock()
	if !s.ended {
		s.ended, s.err = true, err
	}
	s.mu.Unlock()
	wake(s.more)
}

// take waits for tokens and returns all that have arrived. It returns none at the end of the
// stream, or the error that ended it.
func (s *stream) take(ctx context.Context, into []Token) ([]Token, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		into = append(into[:0], s.tokens...)
		s.tokens = slices.Delete(s.tokens, 0, len(s.tokens))
		ended, err := s.ended, s.err
		s.mu.Unlock()
		if len(into) > 0 {
			return into, nil
		}
		if ended {
			return nil, err
		}
		select {
		case <-s.more:
		case <-ctx.Done():
		}
	}
}

// wake sends to a channel with room for one value, without blocking.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
