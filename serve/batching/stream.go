package batching

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/generate"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve/pages"
)

// request is a Request under way. What has no other comment is the engine's.
type request struct {
	Request
	number uint64 // in the order in which they came
	flow   flowKey
	root   pages.Root
	lease  *lora.Lease // nil for the model alone
	came   time.Time

	texts  int // that are not over
	passed int // requests that were begun before it, after it could have been
	begun  time.Time
	first  time.Time // token
	cached int
	prompt []generate.Logprobs

	gone atomic.Bool   // nobody reads it any more
	over chan struct{} // closed when the engine has done with it
	out  stream
}

// stream hands tokens from the engine to who reads them. It never waits for a reader:
// what is not read yet is kept, at most all tokens of the answers.
type stream struct {
	mu     sync.Mutex
	tokens []Token
	ended  bool
	err    error
	more   chan struct{} // has something in it when there is news
}

func newStream() stream { return stream{more: make(chan struct{}, 1)} }

// put adds tokens.
func (s *stream) put(t Token) {
	s.mu.Lock()
	s.tokens = append(s.tokens, t)
	s.mu.Unlock()
	wake(s.more)
}

// end says that no more tokens come, and why where it is not the end of the answers.
// What is said first holds.
func (s *stream) end(err error) {
	s.mu.Lock()
	if !s.ended {
		s.ended, s.err = true, err
	}
	s.mu.Unlock()
	wake(s.more)
}

// take waits for tokens, and gives those that are there; none when they have ended, or
// the error of that.
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

// wake puts something into a channel that has room for one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
