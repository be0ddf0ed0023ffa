package tuning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// Reasons to stop work in progress.
var (
	errStopped   = errors.New("the server ends")
	errCancelled = errors.New("the job was cancelled")
	errPaused    = errors.New("the job was paused")
)

// next waits for the first job in order with one of the statuses, and marks it as in progress. It
// returns nil when the service stops.
func (s *Service) next(statuses ...Status) *underway {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ending {
		var first *Job
		for _, j := range s.jobs.All() {
			if slices.Contains(statuses, j.Status) && s.runs[j.ID] == nil && (first == nil || j.before(first)) {
				first = &j
			}
		}
		if first != nil {
			u := &underway{service: s, id: first.ID}
			u.ctx, u.stop = context.WithCancelCause(s.all)
			s.runs[first.ID] = u
			return u
		}
		s.moved.Wait()
	}
	return nil
}

// before reports whether a job comes before another: interrupted jobs first, then in order.
func (j *Job) before(other *Job) bool {
	late := func(j *Job) int {
		if j.Status == Running {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(late(j), late(other)), cmp.Compare(j.Turn, other.Turn), cmp.Compare(j.Order, other.Order)) < 0
}

// done ends a job that next has started.
func (s *Service) done(u *underway) {
	u.stop(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, u.id)
	if j, _ := s.jobs.Get(u.id); j.Status.Ended() {
		s.tidy(u.id)
	}
	s.moved.Broadcast()
}

// tidy removes the folder of an ended job.
func (s *Service) tidy(id string) {
	if err := fsatomic.RemoveDir(s.path(jobsDir, id)); err != nil {
		s.options.Logger.Warn("the folder of a job that has ended is still there", "job", id, "error", err)
	}
	if j, ok := s.jobs.Get(id); ok {
		s.uncount(j.Request.TrainingFile)
		s.uncount(j.Request.ValidationFile)
	}
}

// caught runs f and returns a panic as an error.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
