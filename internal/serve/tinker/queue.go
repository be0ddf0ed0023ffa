package tinker

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// queue runs the tasks of many lanes on one goroutine. Tasks of a lane run in the order of their
// numbers, regardless of arrival; lanes take turns, one task each.
type queue struct {
	window int64 // how far a number may be ahead of its lane's next
	limit  int64 // bytes of waiting tasks; the next task of a lane is always accepted

	mu      sync.Mutex
	ready   []*lane
	bytes   int64
	stopped bool
	wake    chan struct{}
	done    chan struct{}
}

// lane is a sequence of tasks with consecutive numbers.
type lane struct {
	next    int64
	waiting map[int64]*task
	queued  bool   // in ready, or its task is running
	ended   bool   // no task is accepted
	end     func() // called once on the queue's goroutine when the lane has ended
}

// task is a unit of work of a lane.
type task struct {
	bytes int64
	do    func(ctx context.Context)
	drop  func(error) // called instead of do if the task will not run
}

// Errors of the queue.
var (
	errFull  = errors.New("too much waits to be computed")
	errAhead = errors.New("the number of the request is too far ahead")
	errPast  = errors.New("a request of that number was answered before")
	errEnded = errors.New("the session has ended")
)

func newQueue(window, limit int64) *queue {
	return &queue{window: window, limit: limit, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// newLane returns a lane whose first task has number next.
func newLane(next int64, end func()) *lane {
	return &lane{next: next, waiting: map[int64]*task{}, end: end}
}

// add queues a task.
func (q *queue) add(l *lane, number int64, t *task) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case l.ended || q.stopped:
		return errEnded
	case number < l.next || l.waiting[number] != nil:
		return fmt.Errorf("%w: %d, the next is %d", errPast, number, l.next)
	case number >= l.next+q.window:
		return fmt.Errorf("%w: %d, the next is %d", errAhead, number, l.next)
	case number > l.next && q.bytes+t.bytes > q.limit:
		return errFull
	}
	l.waiting[number] = t
	q.bytes += t.bytes
	q.line(l)
	return nil
}

// line appends a lane to the ready lanes if it can run a task.
func (q *queue) line(l *lane) {
	if l.queued || l.waiting[l.next] == nil && !l.ended || l.ended && l.end == nil {
		return
	}
	l.queued = true
	q.ready = append(q.ready, l)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// finish closes a lane. Queued tasks without a gap in their numbers still run unless drop is set;
// all others fail with why.
func (q *queue) finish(l *lane, drop bool, why error) {
	q.mu.Lock()
	var dropped []*task
	l.ended = true
	keep := l.next
	for !drop && l.waiting[keep] != nil {
		keep++
	}
	for number, t := range l.waiting {
		if number >= keep {
			dropped = append(dropped, t)
			q.bytes -= t.bytes
			delete(l.waiting, number)
		}
	}
	q.line(l)
	q.mu.Unlock()
	for _, t := range dropped {
		t.drop(why)
	}
}

// run runs tasks until ctx is done. Then it drops all waiting tasks and ends all lanes.
func (q *queue) run(ctx context.Context, lanes func() []*lane) {
	defer close(q.done)
	for {
		l, t := q.take()
		if l == nil {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			if t != nil {
				t.drop(errEnded)
			}
			break
		}
		if t != nil {
			t.do(ctx)
		}
		q.give(l)
	}
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	for _, l := range lanes() {
		q.finish(l, true, errEnded)
		q.give(l)
	}
}

// take returns the next lane and its task. The task is nil if the lane has ended.
func (q *queue) take() (*lane, *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) == 0 {
		return nil, nil
	}
	l := q.ready[0]
	q.ready = q.ready[1:]
	t := l.waiting[l.next]
	if t != nil {
		delete(l.waiting, l.next)
		l.next++
		q.bytes -= t.bytes
	}
	return l, t
}

// give returns a lane after its task has run.
func (q *queue) give(l *lane) {
	q.mu.Lock()
	l.queued = false
	var end func()
	if l.ended && l.waiting[l.next] == nil {
		end, l.end = l.end, nil
	}
	q.line(l)
	q.mu.Unlock()
	if end != nil {
		end()
	}
}
