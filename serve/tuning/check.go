package tuning

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// Why something under way is stopped.
var (
	errStopped   = errors.New("the server ends")
	errCancelled = errors.New("the job was cancelled")
	errPaused    = errors.New("the job was paused")
)

// next waits for the first job, by its turn, of one of the statuses, and marks it as under
// way. It gives nil when the service ends.
func (s *Service) next(statuses ...Status) *underway {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ending {
		var first *Job
		for _, j := range s.jobs {
			if slices.Contains(statuses, j.Status) && s.runs[j.ID] == nil && (first == nil || j.before(first)) {
				first = j
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

// before tells which of two jobs comes first: what was under way, then by turn.
func (j *Job) before(other *Job) bool {
	late := func(j *Job) int {
		if j.Status == Running {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(late(j), late(other)), cmp.Compare(j.Turn, other.Turn), cmp.Compare(j.Order, other.Order)) < 0
}

// done ends what next has begun.
func (s *Service) done(u *underway) {
	u.stop(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, u.id)
	if s.jobs[u.id].Status.Ended() {
		s.tidy(u.id)
	}
	s.moved.Broadcast()
}

// tidy removes the folder of a job that has ended.
func (s *Service) tidy(id string) {
	if err := fsatomic.RemoveDir(s.path(jobsDir, id)); err != nil {
		s.options.Logger.Warn("the folder of a job that has ended is still there", "job", id, "error", err)
	}
}

// check reads the files of jobs, one job after the other.
func (s *Service) check() {
	for u := s.next(Validating); u != nil; u = s.next(Validating) {
		if err := caught(u.validate); err != nil && u.ctx.Err() == nil {
			u.fail(err)
		}
		s.done(u)
	}
}

// caught turns a panic into an error.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// validate reads the files of a job as its run will, and settles what depends on them.
func (u *underway) validate() error {
	s := u.service
	j, err := s.Job(u.id)
	if err != nil {
		return err
	}
	c, err := s.config(&j)
	if err != nil {
		return err
	}
	var notes []Event
	read := func(paths []string) (data.Stats, error) {
		o := c.DataOptions()
		o.Tokenizer, o.Template, o.VocabSize = s.options.Data.Tokenizer, s.options.Data.Template, s.options.Data.VocabSize
		set, err := data.Load(u.ctx, paths, o)
		if err != nil {
			return data.Stats{}, err
		}
		stats := set.Stats()
		if stats.Truncated > 0 {
			notes = append(notes, message(Warn, "%d of %d rows are longer than %d tokens, and cut there", stats.Truncated, stats.Rows, o.MaxLength))
		}
		return stats, nil
	}
	stats, err := read(c.Data.Train)
	if err != nil {
		return err
	}
	if len(c.Data.Eval) > 0 {
		if _, err := read(c.Data.Eval); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.change(u.id, func(t *txn, j *Job) (err error) {
		if j.Status != Validating {
			return u.ctx.Err()
		}
		j.Status, j.Rows = Queued, stats.Rows
		j.Settled.settle(j.Request.Method, j.Rows)
		j.Turn, err = t.order()
		return err
	}, append(notes, message(Info, "Files validated, moving job to queued state"))...)
	return err
}

// fail ends a job.
func (u *underway) fail(err error) {
	s := u.service
	u.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[u.id]
	if j.Status.Ended() {
		return
	}
	f := s.failure(j, err)
	s.options.Logger.Warn("a fine-tuning job has failed", "job", u.id, "error", err)
	if errors.Is(err, backend.ErrLost) { // which is no fault of the job
		lost := message(Warn, "The machine is lost: the job can be resumed when the server has started again")
		if _, err := s.change(u.id, func(_ *txn, j *Job) error { j.Status = Paused; return nil }, lost); err != nil {
			s.options.Logger.Error("a job is paused, and that could not be recorded", "job", u.id, "error", err)
		}
		return
	}
	_, err = s.change(u.id, func(_ *txn, j *Job) error {
		j.Status, j.Finished, j.Error = Failed, time.Now().Unix(), f
		return nil
	}, message(Fault, "%s", f.Message))
	if err != nil {
		s.options.Logger.Error("a job has failed, and that could not be recorded", "job", u.id, "error", err)
	}
}

// failure says what an error means to a client. Of what is no fault of the job it tells
// nothing.
func (s *Service) failure(j *Job, err error) *Failure {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Failure{Code: cmp.Or(e.Code, "invalid_request"), Message: e.Message, Param: e.Param}
	}
	if e, ok := errors.AsType[*data.Error](err); ok {
		f := &Failure{Code: "invalid_training_file", Param: "training_file"}
		id, path := j.Request.TrainingFile, s.path(jobsDir, j.ID, trainingData)
		if other := s.path(jobsDir, j.ID, validationData); strings.HasPrefix(e.Place, other) {
			f.Code, f.Param, id, path = "invalid_validation_file", "validation_file", j.Request.ValidationFile, other
		}
		f.Message = "The job failed due to an invalid file: " + strings.ReplaceAll(e.Error(), path, s.nameOf(id))
		if line, ok := strings.CutPrefix(e.Place, path+":"); ok {
			f.Message = fmt.Sprintf("The job failed due to an invalid file, %s, line %s: %s", s.nameOf(id), line, e.Problem)
		}
		return f
	}
	switch {
	case errors.Is(err, backend.ErrOutOfMemory):
		return &Failure{Code: "out_of_memory", Message: "There is not enough memory for the job: a smaller batch_size, shorter rows or a smaller adapter need less"}
	case errors.Is(err, train.ErrNotFinite):
		return &Failure{Code: "not_finite", Message: "The loss is not a finite number any more: a smaller learning_rate_multiplier may help", Param: "learning_rate_multiplier"}
	case errors.Is(written(err), ErrNoSpace):
		return &Failure{Code: "no_space", Message: "The disk of the server is full"}
	}
	if e, ok := errors.AsType[*config.Error](err); ok {
		return &Failure{Code: "invalid_hyperparameters", Message: e.Error()}
	}
	return &Failure{Code: "server_error", Message: "The job failed for a reason that is no fault of its own; the log of the server has it"}
}

// nameOf is what a file was called when it was sent.
func (s *Service) nameOf(id string) string {
	if f, ok := s.files[id]; ok {
		return f.Name
	}
	return id
}
