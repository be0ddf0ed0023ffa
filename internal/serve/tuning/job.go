package tuning

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/store"
)

// Status is the state of a job.
type Status string

// Statuses, in the order of a job's life.
const (
	Validating Status = "validating_files"
	Queued     Status = "queued"
	Running    Status = "running"
	Paused     Status = "paused"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s == Succeeded || s == Failed || s == Cancelled }

// Failure is the reason why a job has failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
}

// Checkpoint is the state of a job at the end of an epoch.
type Checkpoint struct {
	ID      string  `json:"id"`
	Created int64   `json:"created"`
	Model   string  `json:"model"` // name of the model
	Metrics Metrics `json:"metrics"`
}

// Job is the record of a job.
type Job struct {
	ID       string `json:"id"`
	Order    uint64 `json:"order"`           // of creation
	Turn     uint64 `json:"turn"`            // in the queue
	Owner    string `json:"owner,omitempty"` // name of the key that created it
	Created  int64  `json:"created"`
	Finished int64  `json:"finished,omitempty"`
	Status   Status `json:"status"`

	Request       Request         `json:"request"`        // with a seed
	Settled       Hyperparameters `json:"settled"`        // complete after validation
	Continues     bool            `json:"continues"`      // starts from an existing adapter
	Rows          int             `json:"rows"`           // of the training file
	Name          string          `json:"name"`           // of the adapter
	Tuned         string          `json:"tuned"`          // name of the finished adapter
	TrainedTokens int64           `json:"trained_tokens"` // set when the job has succeeded
	ResultFiles   []string        `json:"result_files"`
	Checkpoints   []Checkpoint    `json:"checkpoints"`
	Error         *Failure        `json:"error,omitempty"`

	// Estimated is the estimated end of the job, or 0 if unknown. It is not stored.
	Estimated int64 `json:"-"`
}

// Key implements store.Record.
func (j Job) Key() string { return j.ID }

// OwnedBy implements store.Record.
func (j Job) OwnedBy() string { return j.Owner }

const jobPrefix = "ftjob-"

// tag returns the part of the ID that occurs in model names.
func (j *Job) tag() string { return j.ID[len(jobPrefix) : len(jobPrefix)+8] }

// Job returns a job that a client sees. It fails with ErrNotFound.
func (s *Service) Job(who keys.Client, id string) (Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.job(who, id)
	if err != nil {
		return Job{}, err
	}
	return s.estimated(j), nil
}

func (s *Service) job(who keys.Client, id string) (Job, error) {
	j, ok := s.jobs.Find(who, id)
	if !ok {
		return j, &Error{Kind: ErrNotFound, Param: "fine_tune_id", Code: "fine_tune_not_found", Message: fmt.Sprintf("Could not find fine tune: %.200s", id)}
	}
	return j, nil
}

// estimated returns a copy of a job with its estimated end. The caller holds s.mu.
func (s *Service) estimated(j Job) Job {
	if u := s.runs[j.ID]; u != nil && j.Status == Running {
		j.Estimated = u.estimate()
	}
	return j
}

// Jobs returns the jobs that a client sees, latest first.
func (s *Service) Jobs(who keys.Client) []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.jobs.List(who, func(x, y Job) int { return cmp.Compare(y.Order, x.Order) })
	for i := range all {
		all[i] = s.estimated(all[i])
	}
	return all
}

// Cancel cancels a job that a client sees. It fails with ErrNotFound, and with ErrState if the job
// has already ended.
func (s *Service) Cancel(who keys.Client, id string) (Job, error) {
	return s.interrupt(who, id, errCancelled, func(j *Job) error {
		if j.Status.Ended() {
			return state(j, "Job has already completed: %s, which is %s", j.ID, j.Status)
		}
		j.Status, j.Finished = Cancelled, time.Now().Unix()
		return nil
	}, message(Info, "The job has been cancelled"))
}

// Pause pauses a job that the client sees until Resume is called. It fails with ErrNotFound, and
// with ErrState if the job is neither queued nor running.
func (s *Service) Pause(who keys.Client, id string) (Job, error) {
	return s.interrupt(who, id, errPaused, func(j *Job) error {
		if j.Status != Queued && j.Status != Running {
			return state(j, "only jobs that are queued or running can be paused, and %s is %s", j.ID, j.Status)
		}
		j.Status = Paused
		return nil
	}, message(Info, "The job has been paused"))
}

// Resume continues a paused job that a client sees. It fails with ErrNotFound, and with
// ErrState if the job is not paused.
func (s *Service) Resume(who keys.Client, id string) (Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.job(who, id); err != nil {
		return Job{}, err
	}
	return s.change(id, func(t *store.Tx, j *Job) (err error) {
		if j.Status != Paused {
			return state(j, "only jobs that are paused can be resumed, and %s is %s", j.ID, j.Status)
		}
		j.Status = Queued
		j.Turn, err = t.Order()
		return err
	}, message(Info, "The job has been resumed"))
}

func state(j *Job, format string, args ...any) error {
	return &Error{Kind: ErrState, Code: "invalid_state", Message: fmt.Sprintf(format, args...)}
}

// interrupt changes a job and stops its work in progress.
func (s *Service) interrupt(who keys.Client, id string, why error, change func(*Job) error, e Event) (Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.job(who, id); err != nil {
		return Job{}, err
	}
	j, err := s.change(id, func(_ *store.Tx, j *Job) error { return change(j) }, e)
	if err != nil {
		return j, err
	}
	if u := s.runs[id]; u != nil {
		u.stop(why) // which also cleans up
	} else if j.Status.Ended() {
		s.tidy(id)
	}
	return j, nil
}

// change replaces the record of a job and adds events in one transaction. The caller holds s.mu.
func (s *Service) change(id string, change func(*store.Tx, *Job) error, events ...Event) (Job, error) {
	old, err := s.job(keys.Client{}, id)
	if err != nil {
		return Job{}, err
	}
	j := old
	err = s.update(func(t *store.Tx) error {
		j = old
		if err := change(t, &j); err != nil {
			return err
		}
		if err := s.tell(t, id, events...); err != nil {
			return err
		}
		return s.jobs.Put(t, j)
	})
	if err != nil {
		return Job{}, err
	}
	s.moved.Broadcast()
	return s.estimated(j), nil
}
