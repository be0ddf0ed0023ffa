package tuning

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/train"
)

// underway is a job in progress.
type underway struct {
	service *Service
	id      string
	ctx     context.Context
	stop    context.CancelCauseFunc

	// The fields below belong to the run's goroutine.
	job      Job // at the start of the run
	last     train.Report
	saved    time.Time // when a checkpoint was last requested
	reported bool

	mu       sync.Mutex
	figures  []Event // not yet written
	flushed  time.Time
	finish   time.Time // estimated
	began    time.Time // end of the first step
	beganAt  int       // number of that step
	flushing sync.Mutex
}

// train runs jobs, one after the other.
func (s *Service) train(t Trainer) {
	for u := s.next(Queued, Running); u != nil; u = s.next(Queued, Running) {
		if err := caught(func() error { return u.train(t) }); err != nil && u.ctx.Err() == nil {
			u.fail(err)
		}
		u.flush()
		s.done(u)
	}
}

// train runs the job from its current state until it ends or is stopped.
func (u *underway) train(t Trainer) error {
	s := u.service
	s.mu.Lock()
	before, _ := s.jobs.Get(u.id)
	begins := message(Info, "Fine-tuning job started")
	if before.Status == Running {
		begins = message(Info, "The server has started again: the job goes on from its last checkpoint")
	}
	j, err := s.change(u.id, func(_ *store.Tx, j *Job) error {
		if j.Status != Queued && j.Status != Running {
			return context.Cause(u.ctx)
		}
		j.Status = Running
		return nil
	}, begins)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.options.Logger.Info("a fine-tuning job begins", "job", u.id, "rows", j.Rows, "method", j.Request.Method)
	u.job = j
	summary, err := u.run(t)
	if errors.Is(err, train.ErrCheckpoint) {
		u.tell(message(Warn, "The job begins anew, because it cannot go on from its checkpoint: %v", err))
		if err := os.RemoveAll(s.path(jobsDir, u.id, outputDir)); err != nil {
			return err
		}
		u.reported = false
		summary, err = u.run(t)
	}
	if err != nil {
		return err
	}
	return u.succeed(summary)
}

func (u *underway) run(t Trainer) (*train.Summary, error) {
	c, err := u.service.config(&u.job)
	if err != nil {
		return nil, err
	}
	u.saved = time.Now()
	r, err := t.New(u.ctx, c, train.Observer{Step: u.step, Save: u.due, Saved: u.keep})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Train(u.ctx)
}

// succeed stores the results of a run.
func (u *underway) succeed(summary *train.Summary) error {
	s := u.service
	if err := s.keep(summary.Adapter, u.id); err != nil {
		return err
	}
	u.flush()
	result, err := s.results(u.job.Owner, filepath.Join(s.path(jobsDir, u.id, outputDir), "metrics.jsonl"))
	if err != nil {
		return err
	}
	taken := s.taken()
	m := Model{Job: u.id, Owner: u.job.Owner, Dir: u.id, Created: time.Now().Unix()}
	if m.Name = u.job.Name; taken(m.Name) { // taken since the job was created
		m.Name += "-" + u.job.tag()
	}
	_, unloaded := s.registry.LoadStep(u.ctx, m.Name, s.path(adaptersDir, m.Dir)) // before the event announces it
	s.mu.Lock()
	_, err = s.change(u.id, func(t *store.Tx, j *Job) error {
		if j.Status != Running {
			return context.Cause(u.ctx)
		}
		j.Status, j.Finished, j.Name, j.Tuned, j.TrainedTokens = Succeeded, m.Created, m.Name, m.Name, summary.Tokens
		last := Checkpoint{ID: newID("ftckpt_"), Created: m.Created, Model: m.Name, Metrics: *figuresOf(u.last)}
		last.Metrics.Step = summary.Steps
		j.Checkpoints, j.ResultFiles = append(slices.Clone(j.Checkpoints), last), []string{result.ID}
		if err := s.putFile(t, &result); err != nil {
			return err
		}
		return s.models.Put(t, m)
	}, message(Info, "New fine-tuned model created: %s", m.Name), message(Info, "The job has successfully completed"))
	if err == nil {
		s.space.Add(result.ID, result.Bytes, 0)
	}
	s.mu.Unlock()
	if err != nil {
		s.forget(m)
		return errors.Join(err, os.Remove(s.path(filesDir, result.ID)))
	}
	s.options.Logger.Info("a fine-tuning job has succeeded", "job", u.id, "model", m.Name, "steps", summary.Steps, "tokens", summary.Tokens)
	if unloaded != nil {
		u.tell(message(Warn, "The model is not loaded yet, and will be when it is asked for: %v", unloaded))
	}
	return nil
}
