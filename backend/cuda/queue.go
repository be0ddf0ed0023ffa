//go:build cuda && linux

package cuda

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// queue hands work to the goroutine that makes a device's calls. That keeps
// its thread, on which the device's context is current, for as long as it
// lives: no other goroutine ever sees the context.
type queue struct {
	mu     sync.RWMutex // held for reading while sending
	closed bool
	jobs   chan gpu.Job
	nudges chan struct{}
	ended  chan struct{}
}

// newQueue starts the goroutine. It runs begin first, end last, and nudged after each nudge. If begin fails, newQueue
// returns its error.
func newQueue(begin func(q *queue) error, nudged, end func()) (*queue, error) {
	q := &queue{jobs: make(chan gpu.Job, 64), nudges: make(chan struct{}, 1), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(q.ended)
		// The thread ends with the goroutine, which does not give it back.
		runtime.LockOSThread()
		err := begin(q)
		started <- err
		if err != nil {
			return
		}
		defer end()
		for {
			select {
			case j, ok := <-q.jobs:
				if !ok {
					return
				}
				j.Perform()
			case <-q.nudges:
				nudged()
			}
		}
	}()
	if err := <-started; err != nil {
		<-q.ended
		return nil, err
	}
	return q, nil
}

// nudge signals the goroutine that some work has ended. It never blocks, so threads that the goroutine waits for may
// call it.
func (q *queue) nudge() {
	select {
	case q.nudges <- struct{}{}:
	default:
	}
}

// send enqueues j. Errors: backend.ErrClosed.
func (q *queue) send(j gpu.Job) error {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		return fmt.Errorf("cuda: device: %w", backend.ErrClosed)
	}
	q.jobs <- j
	return nil
}

// close rejects further jobs and waits for the queued ones.
func (q *queue) close() {
	q.mu.Lock()
	first := !q.closed
	if first {
		q.closed = true
		close(q.jobs)
	}
	q.mu.Unlock()
	<-q.ended
}
