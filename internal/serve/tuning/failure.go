package tuning

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// fail ends a job with an error.
func (u *underway) fail(err error) {
	s := u.service
	u.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	j, _ := s.jobs.Get(u.id)
	if j.Status.Ended() {
		return
	}
	f := s.failure(&j, err)
	s.options.Logger.Warn("a fine-tuning job has failed", "job", u.id, "error", err)
	if errors.Is(err, backend.ErrLost) { // not the fault of the job
		lost := message(Warn, "The device is lost: the job can be resumed on another one, or when the server has started again")
		if _, err := s.change(u.id, func(_ *store.Tx, j *Job) error { j.Status = Paused; return nil }, lost); err != nil {
			s.options.Logger.Error("a job is paused, and that could not be recorded", "job", u.id, "error", err)
		}
		return
	}
	_, err = s.change(u.id, func(_ *store.Tx, j *Job) error {
		j.Status, j.Finished, j.Error = Failed, time.Now().Unix(), f
		return nil
	}, message(Fault, "%s", f.Message))
	if err != nil {
		s.options.Logger.Error("a job has failed, and that could not be recorded", "job", u.id, "error", err)
	}
}

// failure converts an error to the failure of a job. Internal errors are not disclosed.
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

// nameOf returns the original name of an uploaded file.
func (s *Service) nameOf(id string) string {
	if f, ok := s.files.Get(id); ok {
		return f.Name
	}
	return id
}
