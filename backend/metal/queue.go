//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lorafuse/lorafuse/backend/gpu"
)

// mostCommands is the maximum number of command buffers on their way. Metal's queue has 64, and the thread that creates
// one more waits inside of Metal.
const mostCommands = 16

// queue holds the pending commands in submission order. A run or copy consists of commands that share a ticket, its
// number; the last of them completes it. A goroutine waits for them.
type queue struct {
	mu       sync.Mutex
	changed  sync.Cond // of list, closed and done
	list     []given   // that have not ended; the first is waited for
	closed   bool
	issued   uint64        // the last completed ticket; used by the submitter only
	done     atomic.Uint64 // the last ticket that has ended, with all before it
	failed   atomic.Uint64 // the last ticket with a failed command
	places   chan struct{} // holds a token for each command buffer on its way
	ended    chan struct{}
	pace     *pace
	finished func() // after each ticket
}

// given is a pending command.
type given struct {
	work // empty if only its turn matters
	span
	last bool           // of its ticket
	end  gpu.Completion // of the ticket, or nil
}

// span is the range of kernels that a command runs, for messages and estimates.
type span struct {
	p        *program // nil for a copy
	from, to int
	slow     float64 // seconds that it takes a slow device
}

// newQueue starts the goroutine, which corrects pace and calls finished after each ticket.
func newQueue(pace *pace, finished func()) *queue {
	q := &queue{places: make(chan struct{}, mostCommands), ended: make(chan struct{}), pace: pace, finished: finished}
	q.changed.L = &q.mu
	go q.wait()
	return q
}

// enter waits for a place for a command buffer, until the context ends. The caller adds one with push or add, or calls
// leave.
func (q *queue) enter(ctx context.Context) error {
	select {
	case q.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case q.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave frees a place.
func (q *queue) leave() { <-q.places }

// push adds a command of the next ticket, whose last command follows. Like add, it is for one caller at a time.
func (q *queue) push(w work, s span) { q.append(given{work: w, span: s}) }

// add adds the last command of the next ticket. It may be empty.
func (q *queue) add(w work, end gpu.Completion) {
	q.issued++
	q.append(given{work: w, last: true, end: end})
}

func (q *queue) append(g given) {
	q.mu.Lock()
	q.list = append(q.list, g)
	q.mu.Unlock()
	q.changed.Broadcast()
}

// next returns the next ticket.
func (q *queue) next() uint64 { return q.issued + 1 }

// reached reports whether the commands of a ticket have ended.
func (q *queue) reached(ticket uint64) bool { return q.done.Load() >= ticket }

// failing reports whether a command of the next ticket has failed already.
func (q *queue) failing() bool { return q.failed.Load() == q.next() }

func (q *queue) wait() {
	defer close(q.ended)
	var failed error // the first error of the ticket
	for {
		g, ok := q.first()
		if !ok {
			return
		}
		if g.work != (work{}) {
			if _, err := q.end(g); err != nil && failed == nil {
				failed = err
				q.failed.Store(q.done.Load() + 1)
			}
		}
		q.mu.Lock()
		q.list = q.list[:copy(q.list, q.list[1:])]
		if g.last {
			q.done.Add(1)
		}
		q.mu.Unlock()
		if !g.last {
			continue
		}
		q.changed.Broadcast()
		if g.end != nil {
			g.end.Finish(failed)
		}
		failed = nil
		q.finished()
	}
}

// end waits for a command that has a place, and learns from its duration.
func (q *queue) end(g given) (time.Duration, error) {
	took, err := g.work.wait()
	q.leave()
	switch {
	case err == nil:
		q.pace.learn(g.slow, took)
	case g.p != nil:
		if stopped(err) {
			q.pace.slowDown()
		}
		err = fmt.Errorf("%s: %w", g.span.String(), err)
	}
	return took, err
}

// String describes the command.
func (s span) String() string {
	plan := s.p.Plan
	first, last := plan.Of(s.from), plan.Of(s.to-1)
	text := fmt.Sprintf("launch %d %v", first, plan.Op(first))
	if first != last {
		text = fmt.Sprintf("launches %d %v to %d %v", first, plan.Op(first), last, plan.Op(last))
	}
	return text
}

// first returns the next command to wait for, or none when the queue is closed.
func (q *queue) first() (given, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.closed {
		q.changed.Wait()
	}
	if len(q.list) == 0 {
		return given{}, false
	}
	return q.list[0], true
}

// await waits for the commands of a ticket.
func (q *queue) await(ticket uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.reached(ticket) {
		q.changed.Wait()
	}
}

// close waits for all commands, and ends the goroutine.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.changed.Broadcast()
	<-q.ended
}
