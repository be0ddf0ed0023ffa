//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"sync"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend/gpu"
)

// queue holds the pending commands in submission order. The number of a command is its ticket. A goroutine waits for
// them.
type queue struct {
	mu       sync.Mutex
	changed  sync.Cond // of list, closed and done
	list     []given   // that have not ended; the first is waited for
	closed   bool
	issued   uint64        // the last ticket; used by the submitter only
	done     atomic.Uint64 // the last ticket that has ended, with all before it
	ended    chan struct{}
	finished func() // after each
}

// given is a pending command. It may be empty if only its turn matters.
type given struct {
	work
	end gpu.Completion // or nil
}

// newQueue starts the goroutine, which calls finished after each command.
func newQueue(finished func()) *queue {
	q := &queue{ended: make(chan struct{}), finished: finished}
	q.changed.L = &q.mu
	go q.wait()
	return q
}

// add is for one caller at a time, who has given the command. Its ticket is the next.
func (q *queue) add(w work, end gpu.Completion) {
	q.issued++
	q.mu.Lock()
	q.list = append(q.list, given{w, end})
	q.mu.Unlock()
	q.changed.Broadcast()
}

// next returns the ticket of the next added command.
func (q *queue) next() uint64 { return q.issued + 1 }

// reached reports whether the command of a ticket has ended.
func (q *queue) reached(ticket uint64) bool { return q.done.Load() >= ticket }

func (q *queue) wait() {
	defer close(q.ended)
	for {
		g, ok := q.first()
		if !ok {
			return
		}
		var err error
		if g.work != (work{}) {
			_, err = g.wait()
		}
		q.mu.Lock()
		q.list = q.list[:copy(q.list, q.list[1:])]
		q.done.Add(1)
		q.mu.Unlock()
		q.changed.Broadcast()
		if g.end != nil {
			g.end.Finish(err)
		}
		q.finished()
	}
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

// await waits for the command of a ticket.
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
