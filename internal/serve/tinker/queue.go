package tinker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// queue runs the tasks of many lanes, one at a time, except for tasks that may run together. Tasks
// of a lane run in the order of their numbers, regardless of arrival; lanes take turns, one task
// each.
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
	bytes    int64
	together bool // may run at the same time as such tasks of other lanes
	do       func(ctx context.Context)
	drop     func(error) // called instead of do if the task will not run
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
		turns := q.take()
		if len(turns) == 0 {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			for _, x := range turns {
				if x.task != nil {
					x.task.drop(errEnded)
				}
			}
			break
		}
		var wait sync.WaitGroup
		for _, x := range turns {
			if x.task != nil {
				wait.Go(func() { x.task.do(ctx) })
			}
		}
		wait.Wait()
		for _, x := range turns {
			q.give(x.lane)
		}
	}
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	for _, l := range lanes() {
		q.finish(l, true, errEnded)
		q.give(l)
	}
}

// turn is a lane and its task, nil if the lane has ended.
type turn struct {
	lane *lane
	task *task
}

// take returns the turn of the next lane, and if its task may run together with others, those of
// the lanes behind it whose tasks may.
func (q *queue) take() (turns []turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = slices.DeleteFunc(q.ready, func(l *lane) bool {
		t := l.waiting[l.next]
		if len(turns) > 0 && (t == nil || !t.together || turns[0].task == nil || !turns[0].task.together) {
			return false
		}
		if t != nil {
			delete(l.waiting, l.next)
			l.next++
			q.bytes -= t.bytes
		}
		turns = append(turns, turn{l, t})
		return true
	})
	return turns
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
